#pragma once

#include <cstdint>
#include <string_view>

namespace mfsdp::model {

enum class ModelFamily { gpt2, llama, qwen3 };

[[nodiscard]] std::string_view name(ModelFamily family);

/// What a transformer looks like, independent of family-specific key names (Hugging Face's `n_embd` and `hidden_size`
/// are the same field here). Filled by the configuration parser or from a Hugging Face `config.json`; every value but
/// padded_vocab_size is final, nothing is left to derive.
struct ModelConfig {
    ModelFamily family = ModelFamily::gpt2;
    std::int64_t vocab_size = 0;
    /// Rows of the vocabulary tables in memory, >= vocab_size; those beyond vocab_size stay zero, never enter the
    /// softmax and are in no file. 0 means vocab_size (describe_model fills it in).
    std::int64_t padded_vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t num_hidden_layers = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t num_key_value_heads = 0;  ///< divides num_attention_heads
    std::int64_t head_dim = 0;
    std::int64_t intermediate_size = 0;
    std::int64_t max_position_embeddings = 0;
    double norm_epsilon = 1e-5;  ///< layer_norm_epsilon (gpt2) or rms_norm_eps (llama, qwen3), added inside the root
    double rope_theta = 10000.0;
    double initializer_range = 0.02;
    bool attention_bias = false;  ///< biases on q, k, v, o (gpt2: always)
    bool mlp_bias = false;        ///< biases on the MLP projections (gpt2: always)
    bool tie_word_embeddings = false;
};

}  // namespace mfsdp::model
