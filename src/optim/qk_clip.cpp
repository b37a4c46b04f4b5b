#include "mfsdp/optim/qk_clip.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace mfsdp::optim {

namespace {

/// The block whose unit has the parameter.
std::int64_t block_of(const model::ModelSpec& spec, std::int64_t parameter) {
    for (std::int64_t block = 0; block < spec.blocks(); ++block) {
        const auto& parameters = spec.units[static_cast<std::size_t>(block + 1)].parameters;
        if (std::find(parameters.begin(), parameters.end(), parameter) != parameters.end()) return block;
    }
    MFSDP_ASSERT(false, "a projection belongs to a block");
    return 0;
}

bool projects(const std::string& name, std::string_view projection) {
    const std::size_t end = name.rfind('.');
    return end != std::string::npos && std::string_view(name).substr(0, end).ends_with(projection);
}

}  // namespace

std::vector<HeadRows> head_rows(const model::ModelSpec& spec, std::int64_t parameter) {
    const model::ModelConfig& config = spec.config;
    const std::string& name = spec.parameters[static_cast<std::size_t>(parameter)].name;
    const bool fused = projects(name, "attn.c_attn");
    const bool queries = fused || projects(name, "self_attn.q_proj"),
               keys = fused || projects(name, "self_attn.k_proj");
    if (!queries && !keys) return {};
    const std::int64_t query_rows = config.num_attention_heads * config.head_dim;
    const std::int64_t key_rows = config.num_key_value_heads * config.head_dim;
    const std::int64_t block = block_of(spec, parameter);
    std::vector<HeadRows> result;
    if (queries) result.push_back({block, false, 0, query_rows, query_rows / config.num_key_value_heads});
    if (keys) result.push_back({block, true, fused ? query_rows : 0, key_rows, config.head_dim});
    return result;
}

}  // namespace mfsdp::optim
