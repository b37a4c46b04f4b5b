#pragma once

#include "mfsdp/model/parameter_spec.h"
#include "mfsdp/model/transformer.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace mfsdp::test {

/// A tiny model with its batch; the cases cover what distinguishes models from each other.
struct ModelCase {
    std::string name;
    model::ModelConfig config;
    model::TransformerOptions options;
};

inline ModelCase gpt2_case(std::string name, bool tied) {
    ModelCase result;
    result.name = std::move(name);
    result.config = {.family = model::ModelFamily::gpt2,
                     .vocab_size = 23,
                     .hidden_size = 15,
                     .num_hidden_layers = 2,
                     .num_attention_heads = 3,
                     .num_key_value_heads = 3,
                     .head_dim = 5,
                     .intermediate_size = 19,
                     .max_position_embeddings = 9,
                     .attention_bias = true,
                     .mlp_bias = true,
                     .tie_word_embeddings = tied};
    result.options = {.batch_size = 3, .sequence_length = 7};
    return result;
}

inline ModelCase llama_case(std::string name, std::int64_t key_value_heads, bool bias, bool tied) {
    ModelCase result;
    result.name = std::move(name);
    result.config = {.family = model::ModelFamily::llama,
                     .vocab_size = 23,
                     .hidden_size = 13,
                     .num_hidden_layers = 2,
                     .num_attention_heads = 4,
                     .num_key_value_heads = key_value_heads,
                     .head_dim = 6,
                     .intermediate_size = 17,
                     .max_position_embeddings = 16,
                     .norm_epsilon = 1e-4,
                     .rope_theta = 100.0,
                     .attention_bias = bias,
                     .mlp_bias = bias,
                     .tie_word_embeddings = tied};
    result.options = {.batch_size = 2, .sequence_length = 9};
    return result;
}

/// As llama with grouped queries, and norms of the heads.
inline ModelCase qwen3_case(std::string name, bool tied) {
    ModelCase result = llama_case(std::move(name), 2, false, tied);
    result.config.family = model::ModelFamily::qwen3;
    return result;
}

inline std::vector<ModelCase> model_cases() {
    return {gpt2_case("gpt2 tied", true),
            gpt2_case("gpt2 untied", false),
            llama_case("llama multi-head untied", 4, false, false),
            llama_case("llama grouped queries, biases, tied", 2, true, true),
            llama_case("llama one key head, biases, untied", 1, true, false),
            qwen3_case("qwen3 untied", false),
            qwen3_case("qwen3 tied", true)};
}

/// The types that a model can compute in.
inline std::vector<device::DType> compute_types() { return {device::DType::float32, device::DType::bfloat16}; }

/// Weights large enough that attention, gates and norms are far from their linear range: norms near 1, the rest
/// normal with the deviation given.
inline std::vector<std::vector<float>> random_weights(const model::ModelSpec& spec, double deviation = 0.3) {
    std::mt19937_64 generator(20240607);
    std::normal_distribution<double> normal;
    std::vector<std::vector<float>> weights;
    for (const model::ParameterSpec& parameter : spec.parameters) {
        const double centre = parameter.initialisation == model::Initialisation::ones ? 1.0 : 0.0;
        std::vector<float> values(static_cast<std::size_t>(parameter.count()));
        for (float& value : values) value = static_cast<float>(centre + deviation * normal(generator));
        weights.push_back(std::move(values));
    }
    return weights;
}

struct Tokens {
    std::vector<std::int32_t> inputs, targets;
};

/// Random tokens; every seventh target is ignored.
inline Tokens random_tokens(const ModelCase& description) {
    std::mt19937_64 generator(99);
    std::uniform_int_distribution<std::int32_t> token(0, static_cast<std::int32_t>(description.config.vocab_size) - 1);
    Tokens tokens;
    for (std::int64_t i = 0; i < description.options.batch_size * description.options.sequence_length; ++i) {
        tokens.inputs.push_back(token(generator));
        tokens.targets.push_back(i % 7 == 3 ? -100 : token(generator));
    }
    return tokens;
}

}  // namespace mfsdp::test
