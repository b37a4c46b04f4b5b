#include "mfsdp/optim/row_blocks.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace mfsdp::optim {

namespace {

/// Whether a matrix that is not fused is the projection of queries, keys or values.
bool projects_heads(const std::string& name) {
    constexpr std::array<std::string_view, 3> kEndings{".q_proj.weight", ".k_proj.weight", ".v_proj.weight"};
    return std::any_of(kEndings.begin(), kEndings.end(),
                       [&](std::string_view ending) { return std::string_view(name).ends_with(ending); });
}

void append_heads(std::vector<model::RowBlock>& blocks, const model::RowBlock& block, std::int64_t head_size) {
    MFSDP_ASSERT(block.row_count % head_size == 0, "heads tile the rows of a projection");
    for (std::int64_t head = 0; head * head_size < block.row_count; ++head) {
        std::string name = block.name;
        if (!name.empty()) name.append(".");
        blocks.push_back({name.append(std::to_string(head)), block.row_begin + head * head_size, head_size});
    }
}

}  // namespace

std::vector<model::RowBlock> optimizer_blocks(const model::ModelConfig& config, const model::ParameterSpec& parameter,
                                              const RowBlockOptions& options) {
    MFSDP_ASSERT(options.split_qkv || !options.split_heads, "heads are parts of the blocks q, k, v");
    if (!options.split_qkv) return {};
    if (!options.split_heads) return parameter.row_blocks;
    std::vector<model::RowBlock> blocks;
    if (parameter.row_blocks.empty()) {
        if (projects_heads(parameter.name)) append_heads(blocks, {"", 0, parameter.rows()}, config.head_dim);
    }
    for (const model::RowBlock& block : parameter.row_blocks) append_heads(blocks, block, config.head_dim);
    return blocks;
}

}  // namespace mfsdp::optim
