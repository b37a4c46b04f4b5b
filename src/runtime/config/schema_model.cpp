#include "runtime/config/key_row.h"

namespace mfsdp::runtime::rows {

namespace {

// Products of two of these stay inside int64.
constexpr std::int64_t kMaxDimension = 2147483647;

// Every block is a unit with a dozen parameters in the memory of each rank.
constexpr std::int64_t kMostBlocks = 65536;

KeyBuilder blocks(std::string_view path) { return integer(path).at_least(1).ceiling(kMostBlocks).required(); }
KeyBuilder dimension(std::string_view path) { return integer(path).at_least(1).ceiling(kMaxDimension); }
KeyBuilder gpt2(KeyBuilder row) { return row.only("model.model_type", {"gpt2"}); }
KeyBuilder llama(KeyBuilder row) { return row.only("model.model_type", {"llama"}); }
KeyBuilder llama_or_qwen3(KeyBuilder row) { return row.only("model.model_type", {"llama", "qwen3"}); }

}  // namespace

std::vector<KeyRow> model_keys() {
    return {
        name("model.model_type")
            .meaning("family; decides which of the next keys exist")
            .required()
            .names({"gpt2", "llama", "qwen3"}),
        string("model.hf_config")
            .meaning("a Hugging Face `config.json` read first (null: that of `init_from`, if set); keys beside it "
                     "override, and need not be given here. "
                     "Keys without effect on training are kept for exported models and logged once; `torch_dtype` and "
                     "`dtype` yield to `precision.param_dtype`; `rope_parameters` of type default gives `rope_theta`")
            .allowed("an existing file"),
        string("model.init_from")
            .meaning("start from these Hugging Face weights, in one file or sharded; null: random from `train.seed`")
            .allowed("directory with safetensors"),
        integer("model.vocab_size")
            .meaning("token files may have fewer; the byte tokenizer needs 257")
            .required()
            .at_least(2)
            .ceiling(kMaxDimension),
        llama_or_qwen3(dimension("model.hidden_size").meaning("as in Hugging Face").required()),
        llama_or_qwen3(blocks("model.num_hidden_layers").meaning("as in Hugging Face")),
        llama_or_qwen3(dimension("model.num_attention_heads").meaning("as in Hugging Face").required()),
        llama_or_qwen3(dimension("model.intermediate_size").meaning("as in Hugging Face").required()),
        llama_or_qwen3(dimension("model.num_key_value_heads").meaning("null: `num_attention_heads`")),
        llama_or_qwen3(integer("model.head_dim")
                           .meaning("null: hidden_size / num_attention_heads")
                           .at_least(2)
                           .multiple_of(2, ">= 2, even")
                           .ceiling(kMaxDimension)),
        llama_or_qwen3(dimension("model.max_position_embeddings").meaning("longest sequence").required()),
        llama_or_qwen3(number("model.rms_norm_eps", "1e-6").meaning("added to the mean square").above_zero()),
        llama_or_qwen3(number("model.rope_theta", "10000").meaning("base of the rotary angles").above_zero()),
        llama_or_qwen3(boolean("model.attention_bias", "false").meaning("biases on q, k, v, o")),
        llama(boolean("model.mlp_bias", "false").meaning("biases on gate, up, down")),
        llama_or_qwen3(name("model.hidden_act", "\"silu\"").meaning("activation of the gate").names({"silu"})),
        gpt2(dimension("model.n_embd").meaning("hidden size").required()),
        gpt2(blocks("model.n_layer").meaning("blocks")),
        gpt2(dimension("model.n_head").meaning("attention heads").required()),
        gpt2(dimension("model.n_positions").meaning("longest sequence").required()),
        gpt2(dimension("model.n_inner").meaning("intermediate size; null: 4 n_embd")),
        gpt2(number("model.layer_norm_epsilon", "1e-5").meaning("added to the variance").above_zero()),
        gpt2(name("model.activation_function", "\"gelu_new\"").meaning("activation of the MLP").names({"gelu_new"})),
        gpt2(boolean("model.tie_word_embeddings", "true").meaning("head = embedding")),
        llama_or_qwen3(boolean("model.tie_word_embeddings", "false").meaning("head = embedding")),
        number("model.initializer_range", "0.02").meaning("standard deviation of the normal at start").above_zero(),
        integer("model.make_vocab_size_divisible_by", "128")
            .meaning("rows in memory are rounded up; extra rows stay zero, never in softmax or files")
            .at_least(1)
            .ceiling(kMaxDimension),
        string("model.rope_scaling").foreign(),
        integer("model.sliding_window").foreign(),
        boolean("model.use_sliding_window", "false").foreign(),
        string("model.quantization_config").foreign(),
        number("model.*_dropout").foreign(),
        number("model.*_pdrop").foreign(),
    };
}

}  // namespace mfsdp::runtime::rows
