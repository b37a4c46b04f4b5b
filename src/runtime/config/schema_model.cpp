#include "runtime/config/key_row.h"

namespace mfsdp::runtime::rows {

namespace {

// Products of two of these stay inside int64.
constexpr std::int64_t kMaxDimension = 2147483647;

KeyBuilder dimension(std::string_view path) { return integer(path).at_least(1).ceiling(kMaxDimension); }
KeyBuilder gpt2(KeyBuilder row) { return row.only("model.model_type", {"gpt2"}); }
KeyBuilder llama(KeyBuilder row) { return row.only("model.model_type", {"llama"}); }
KeyBuilder llama_or_qwen3(KeyBuilder row) { return row.only("model.model_type", {"llama", "qwen3"}); }

}  // namespace

std::vector<KeyRow> model_keys() {
    return {
        name("model.model_type").required().names({"gpt2", "llama"}, {"qwen3"}),
        string("model.hf_config").allowed("an existing file"),
        string("model.init_from").later({"null"}),
        integer("model.vocab_size").required().at_least(2).ceiling(kMaxDimension),
        llama_or_qwen3(dimension("model.hidden_size").required()),
        llama_or_qwen3(dimension("model.num_hidden_layers").required()),
        llama_or_qwen3(dimension("model.num_attention_heads").required()),
        llama_or_qwen3(dimension("model.intermediate_size").required()),
        llama_or_qwen3(dimension("model.num_key_value_heads")),
        llama_or_qwen3(integer("model.head_dim").at_least(2).multiple_of(2, ">= 2, even").ceiling(kMaxDimension)),
        llama_or_qwen3(dimension("model.max_position_embeddings").required()),
        llama_or_qwen3(number("model.rms_norm_eps", "1e-6").above_zero()),
        llama_or_qwen3(number("model.rope_theta", "10000").above_zero()),
        llama_or_qwen3(boolean("model.attention_bias", "false")),
        llama(boolean("model.mlp_bias", "false")),
        llama_or_qwen3(name("model.hidden_act", "\"silu\"").names({"silu"})),
        gpt2(dimension("model.n_embd").required()),
        gpt2(dimension("model.n_layer").required()),
        gpt2(dimension("model.n_head").required()),
        gpt2(dimension("model.n_positions").required()),
        gpt2(dimension("model.n_inner")),
        gpt2(number("model.layer_norm_epsilon", "1e-5").above_zero()),
        gpt2(name("model.activation_function", "\"gelu_new\"").names({"gelu_new"})),
        gpt2(boolean("model.tie_word_embeddings", "true")),
        llama_or_qwen3(boolean("model.tie_word_embeddings", "false")),
        number("model.initializer_range", "0.02").above_zero(),
        // The page's default is 128; rounding up is a later feature.
        integer("model.make_vocab_size_divisible_by", "1").later({"1"}),
        string("model.rope_scaling").foreign(),
        integer("model.sliding_window").foreign(),
        boolean("model.use_sliding_window", "false").foreign(),
        string("model.quantization_config").foreign(),
        number("model.*_dropout").foreign(),
        number("model.*_pdrop").foreign(),
    };
}

}  // namespace mfsdp::runtime::rows
