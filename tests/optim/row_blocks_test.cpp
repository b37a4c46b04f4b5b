#include "mfsdp/optim/row_blocks.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"

using namespace mfsdp;
using namespace mfsdp::optim;

namespace {

const model::ParameterSpec& find(const model::ModelSpec& spec, const std::string& ending) {
    for (const model::ParameterSpec& parameter : spec.parameters) {
        if (parameter.name.ends_with(ending)) return parameter;
    }
    throw std::runtime_error("no parameter ends in " + ending);
}

/// "q.0:0+8 q.1:8+8": name, first row and number of rows.
std::string text(const std::vector<model::RowBlock>& blocks) {
    std::string result;
    for (const model::RowBlock& block : blocks) {
        result += (result.empty() ? "" : " ") + block.name + ":" + std::to_string(block.row_begin) + "+" +
                  std::to_string(block.row_count);
    }
    return result;
}

}  // namespace

TEST_CASE("Fused matrices split into their blocks and further into heads", "[optim]") {
    model::ModelConfig config;
    config.family = model::ModelFamily::gpt2;
    config.vocab_size = 20;
    config.hidden_size = 8;
    config.num_hidden_layers = 1;
    config.num_attention_heads = config.num_key_value_heads = 2;
    config.head_dim = 4;
    config.intermediate_size = 16;
    config.max_position_embeddings = 8;
    config.attention_bias = config.mlp_bias = true;
    const model::ModelSpec spec = model::describe_model(config);
    const auto blocks = [&](const std::string& name, const RowBlockOptions& options) {
        return text(optimizer_blocks(config, find(spec, name), options));
    };
    CHECK(blocks("c_attn.weight", {}) == "q:0+8 k:8+8 v:16+8");
    CHECK(blocks("c_attn.weight", {.split_qkv = false}).empty());
    CHECK(blocks("c_attn.weight", {.split_heads = true}) == "q.0:0+4 q.1:4+4 k.0:8+4 k.1:12+4 v.0:16+4 v.1:20+4");
    CHECK(blocks("c_fc.weight", {.split_heads = true}).empty());
    CHECK(blocks("attn.c_proj.weight", {.split_heads = true}).empty());
    CHECK_THROWS_AS(blocks("c_attn.weight", {.split_qkv = false, .split_heads = true}), InternalError);
}

TEST_CASE("Separate projections split into their heads, keys and values into fewer", "[optim]") {
    model::ModelConfig config;
    config.family = model::ModelFamily::llama;
    config.vocab_size = 20;
    config.hidden_size = 12;
    config.num_hidden_layers = 1;
    config.num_attention_heads = 3;
    config.num_key_value_heads = 1;
    config.head_dim = 4;
    config.intermediate_size = 16;
    config.max_position_embeddings = 8;
    const model::ModelSpec spec = model::describe_model(config);
    const auto blocks = [&](const std::string& name, const RowBlockOptions& options) {
        return text(optimizer_blocks(config, find(spec, name), options));
    };
    CHECK(blocks("q_proj.weight", {}).empty());
    CHECK(blocks("q_proj.weight", {.split_heads = true}) == "0:0+4 1:4+4 2:8+4");
    CHECK(blocks("v_proj.weight", {.split_heads = true}) == "0:0+4");
    CHECK(blocks("o_proj.weight", {.split_heads = true}).empty());
    CHECK(blocks("gate_proj.weight", {.split_heads = true}).empty());
}
