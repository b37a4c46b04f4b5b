// Hugging Face directories: a config.json is refused with a DataError, or what it says can be written and read again as
// the same model; an index is refused with a DataError, or names files of its own directory only.
//
// Input: the config.json, a byte 0x1E, the index.

#include "mfsdp/base/error.h"
#include "mfsdp/model/huggingface.h"

#include "fuzz.h"
#include "model/weight_files.h"

#include <algorithm>

using namespace mfsdp;
using namespace mfsdp::model;

namespace {

void check_config(const std::string& text) {
    try {
        const ModelConfig config = parse_huggingface_config(text, "config.json");
        FUZZ_REQUIRE(config.num_attention_heads % config.num_key_value_heads == 0);
        FUZZ_REQUIRE(config.family == ModelFamily::gpt2 || config.head_dim % 2 == 0);
        const std::string written = huggingface_config(config);
        FUZZ_REQUIRE(huggingface_config(parse_huggingface_config(written, "written")) == written);
        if (config.num_hidden_layers > 10) return;
        try {
            const ModelSpec spec = describe_model(config);
            FUZZ_REQUIRE(spec.parameter_count() > 0);
        } catch (const ConfigError&) {  // too large to be counted
        }
    } catch (const DataError& error) {
        FUZZ_REQUIRE(std::string_view(error.what()).starts_with("data: config.json: "));
    }
}

void check_index(const std::string& text) {
    try {
        for (const auto& [tensor, file] : parse_weight_index(text, "index")) {
            FUZZ_REQUIRE(!file.empty() && file != "." && file != "..");
            FUZZ_REQUIRE(std::none_of(file.begin(), file.end(), [](char c) { return c == '/' || c == '\0'; }));
        }
    } catch (const DataError& error) {
        FUZZ_REQUIRE(std::string_view(error.what()).starts_with("data: index: "));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::vector<std::string> parts = mfsdp::fuzz::parts_of(data, size);
    check_config(parts[0]);
    if (parts.size() > 1) check_index(parts[1]);
    return 0;
}
