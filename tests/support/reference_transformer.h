#pragma once

#include "mfsdp/model/parameter_spec.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace mfsdp::test {

/// A transformer as plain loops in double precision, written from the Hugging Face definitions and sharing nothing with
/// the program but the parameters' names: the second source of expected values.
class ReferenceTransformer {
  public:
    using Vector = std::vector<double>;

    explicit ReferenceTransformer(const model::ModelSpec& spec) : config_(spec.config) {
        for (const model::ParameterSpec& parameter : spec.parameters) {
            names_.push_back(parameter.name);
            parameters_[parameter.name] = Vector(static_cast<std::size_t>(parameter.count()));
        }
    }

    /// The values of one parameter, in memory orientation; may be changed between calls.
    Vector& parameter(std::int64_t index) { return parameters_.at(names_.at(static_cast<std::size_t>(index))); }

    /// [rows, T, V], row-major.
    [[nodiscard]] Vector logits(const std::vector<std::int32_t>& inputs, std::int64_t sequence_length) const {
        Vector result;
        for (std::size_t begin = 0; begin < inputs.size(); begin += static_cast<std::size_t>(sequence_length)) {
            const auto first = inputs.begin() + static_cast<std::ptrdiff_t>(begin);
            const Vector row = sequence_logits({first, first + sequence_length});
            result.insert(result.end(), row.begin(), row.end());
        }
        return result;
    }

    /// Sums over the targets that are not -100.
    struct Loss {
        double sum = 0.0;            ///< of the cross-entropies
        double log_z_squares = 0.0;  ///< of (log Z)^2
    };
    [[nodiscard]] Loss loss(const std::vector<std::int32_t>& inputs, const std::vector<std::int32_t>& targets,
                            std::int64_t sequence_length) const {
        const Vector scores = logits(inputs, sequence_length);
        const auto vocabulary = static_cast<std::size_t>(config_.vocab_size);
        Loss result;
        for (std::size_t i = 0; i < targets.size(); ++i) {
            if (targets[i] == -100) continue;
            double exponentials = 0.0;
            for (std::size_t v = 0; v < vocabulary; ++v) exponentials += std::exp(scores[i * vocabulary + v]);
            const double log_z = std::log(exponentials);
            result.sum += log_z - scores[i * vocabulary + static_cast<std::size_t>(targets[i])];
            result.log_z_squares += log_z * log_z;
        }
        return result;
    }

  private:
    [[nodiscard]] bool gpt2() const { return config_.family == model::ModelFamily::gpt2; }
    [[nodiscard]] const Vector& at(const std::string& name) const { return parameters_.at(name); }
    static std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

    /// x [n, in] W^T + b, with the bias that the model has or has not.
    [[nodiscard]] Vector linear(const Vector& x, std::int64_t in, const std::string& name) const {
        const Vector& weight = at(name + ".weight");
        const std::size_t width = index(in);
        const std::size_t out = weight.size() / width;
        const std::size_t rows = x.size() / width;
        const auto bias = parameters_.find(name + ".bias");
        Vector y(rows * out);
        for (std::size_t r = 0; r < rows; ++r) {
            for (std::size_t o = 0; o < out; ++o) {
                double sum = bias == parameters_.end() ? 0.0 : bias->second[o];
                for (std::size_t i = 0; i < width; ++i) sum += x[r * width + i] * weight[o * width + i];
                y[r * out + o] = sum;
            }
        }
        return y;
    }

    [[nodiscard]] Vector norm(const Vector& x, const std::string& name) const {
        const Vector& weight = at(name + ".weight");
        const std::size_t width = weight.size();  // the hidden size, or that of a head
        Vector y(x.size());
        for (std::size_t begin = 0; begin < x.size(); begin += width) {
            double mean = 0.0;
            for (std::size_t i = 0; gpt2() && i < width; ++i) mean += x[begin + i] / static_cast<double>(width);
            double square = 0.0;
            for (std::size_t i = 0; i < width; ++i) square += (x[begin + i] - mean) * (x[begin + i] - mean);
            const double root = std::sqrt(square / static_cast<double>(width) + config_.norm_epsilon);
            for (std::size_t i = 0; i < width; ++i) {
                y[begin + i] = (x[begin + i] - mean) / root * weight[i] + (gpt2() ? at(name + ".bias")[i] : 0.0);
            }
        }
        return y;
    }

    /// Turns the heads of x [T, heads D] by the rotary angles of their positions.
    void rotate(Vector& x, std::int64_t heads) const {
        const std::int64_t size = config_.head_dim;
        const auto length = static_cast<std::int64_t>(x.size()) / (heads * size);
        for (std::int64_t p = 0; p < length; ++p) {
            for (std::int64_t h = 0; h < heads; ++h) {
                for (std::int64_t i = 0; i < size / 2; ++i) {
                    const double angle =
                        static_cast<double>(p) /
                        std::pow(config_.rope_theta, 2.0 * static_cast<double>(i) / static_cast<double>(size));
                    double& first = x[index((p * heads + h) * size + i)];
                    double& second = x[index((p * heads + h) * size + i + size / 2)];
                    const double turned = first * std::cos(angle) - second * std::sin(angle);
                    second = second * std::cos(angle) + first * std::sin(angle);
                    first = turned;
                }
            }
        }
    }

    [[nodiscard]] Vector attention(const Vector& x, const std::string& prefix) const {
        const std::int64_t width = config_.hidden_size;
        const std::int64_t size = config_.head_dim;
        const std::int64_t heads = config_.num_attention_heads;
        const std::int64_t key_heads = config_.num_key_value_heads;
        const auto length = static_cast<std::int64_t>(x.size()) / width;
        Vector query, key, value;
        if (gpt2()) {
            const Vector fused = linear(x, width, prefix + "attn.c_attn");
            for (std::int64_t t = 0; t < length; ++t) {
                const auto row = fused.begin() + t * 3 * width;
                query.insert(query.end(), row, row + width);
                key.insert(key.end(), row + width, row + 2 * width);
                value.insert(value.end(), row + 2 * width, row + 3 * width);
            }
        } else {
            query = linear(x, width, prefix + "self_attn.q_proj");
            key = linear(x, width, prefix + "self_attn.k_proj");
            value = linear(x, width, prefix + "self_attn.v_proj");
            if (config_.family == model::ModelFamily::qwen3) {
                query = norm(query, prefix + "self_attn.q_norm");
                key = norm(key, prefix + "self_attn.k_norm");
            }
            rotate(query, heads);
            rotate(key, key_heads);
        }
        Vector out(index(length * heads * size));
        for (std::int64_t h = 0; h < heads; ++h) {
            const std::int64_t k = h / (heads / key_heads);
            for (std::int64_t t = 0; t < length; ++t) {
                Vector weight(index(t + 1));
                double sum = 0.0;
                for (std::int64_t s = 0; s <= t; ++s) {
                    double score = 0.0;
                    for (std::int64_t i = 0; i < size; ++i) {
                        score += query[index((t * heads + h) * size + i)] * key[index((s * key_heads + k) * size + i)];
                    }
                    weight[index(s)] = std::exp(score / std::sqrt(static_cast<double>(size)));
                    sum += weight[index(s)];
                }
                for (std::int64_t s = 0; s <= t; ++s) {
                    for (std::int64_t i = 0; i < size; ++i) {
                        out[index((t * heads + h) * size + i)] +=
                            weight[index(s)] / sum * value[index((s * key_heads + k) * size + i)];
                    }
                }
            }
        }
        return linear(out, heads * size, prefix + (gpt2() ? "attn.c_proj" : "self_attn.o_proj"));
    }

    [[nodiscard]] Vector mlp(const Vector& x, const std::string& prefix) const {
        const std::int64_t width = config_.hidden_size;
        if (gpt2()) {
            Vector hidden = linear(x, width, prefix + "mlp.c_fc");
            const double factor = std::sqrt(2.0 / std::acos(-1.0));
            for (double& v : hidden) v = 0.5 * v * (1.0 + std::tanh(factor * (v + 0.044715 * v * v * v)));
            return linear(hidden, config_.intermediate_size, prefix + "mlp.c_proj");
        }
        Vector hidden = linear(x, width, prefix + "mlp.gate_proj");
        const Vector up = linear(x, width, prefix + "mlp.up_proj");
        for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] *= up[i] / (1.0 + std::exp(-hidden[i]));
        return linear(hidden, config_.intermediate_size, prefix + "mlp.down_proj");
    }

    static void add(Vector& x, const Vector& y) {
        if (x.size() != y.size()) throw std::logic_error("a branch keeps the shape of the residual stream");
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    }

    [[nodiscard]] Vector sequence_logits(const std::vector<std::int32_t>& tokens) const {
        const std::size_t width = index(config_.hidden_size);
        const Vector& embedding = at(names_.front());
        Vector x;
        for (std::size_t t = 0; t < tokens.size(); ++t) {
            for (std::size_t i = 0; i < width; ++i) {
                x.push_back(embedding[static_cast<std::size_t>(tokens[t]) * width + i] +
                            (gpt2() ? at("transformer.wpe.weight")[t * width + i] : 0.0));
            }
        }
        for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
            const std::string prefix = (gpt2() ? "transformer.h." : "model.layers.") + std::to_string(layer) + ".";
            add(x, attention(norm(x, prefix + (gpt2() ? "ln_1" : "input_layernorm")), prefix));
            add(x, mlp(norm(x, prefix + (gpt2() ? "ln_2" : "post_attention_layernorm")), prefix));
        }
        x = norm(x, gpt2() ? "transformer.ln_f" : "model.norm");
        const std::string head = config_.tie_word_embeddings ? names_.front() : "lm_head.weight";
        const Vector scores = linear(x, config_.hidden_size, head.substr(0, head.rfind('.')));
        const std::size_t padded = at(head).size() / width;
        const std::size_t vocabulary = index(config_.vocab_size);
        if (padded == vocabulary) return scores;
        Vector unpadded;
        for (std::size_t t = 0; t < tokens.size(); ++t) {
            const auto row = scores.begin() + static_cast<std::ptrdiff_t>(t * padded);
            unpadded.insert(unpadded.end(), row, row + static_cast<std::ptrdiff_t>(vocabulary));
        }
        return unpadded;
    }

    model::ModelConfig config_;
    std::vector<std::string> names_;
    std::map<std::string, Vector> parameters_;
};

}  // namespace mfsdp::test
