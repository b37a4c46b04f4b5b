#pragma once

#include "mfsdp/model/model_config.h"

#include "model/layers/linear.h"

#include <vector>

namespace mfsdp::model {

/// Cosines and sines of the rotary angles, [T, D/2] each; undefined tensors for families without rotary positions.
struct RotaryTables {
    device::Tensor cosine;
    device::Tensor sine;
};

struct AttentionRecord {
    Activation input;            ///< [n, C], the normed residual stream
    Activation query_key_value;  ///< [n, (H + 2K) D], query and key after rotation
    Activation heads;            ///< [n, H D], before the output projection
    Activation log_sum_exp;      ///< [B, H, T]
};

/// Causal self-attention with grouped queries. Query, key and value are column ranges of one buffer, whether one fused
/// projection writes them (gpt2) or three (llama), so the two families differ in their list of projections only.
class Attention {
  public:
    /// `tables` may be filled later, but before the first forward.
    Attention(ParameterCursor& cursor, const ModelConfig& config, const RotaryTables& tables);

    /// Takes the normed input; returns the branch's output [n, C].
    [[nodiscard]] Activation forward(const LayerContext& context, UnitTensors weights, Activation input,
                                     AttentionRecord& record) const;
    /// Returns the gradient of the normed input; writes the parameters' gradients; empties `record`.
    [[nodiscard]] Activation backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                                      const device::Tensor& grad_out, AttentionRecord& record) const;

  private:
    struct Projection {
        Linear linear;
        std::int64_t column_begin;
        std::int64_t columns;
        [[nodiscard]] device::Tensor of(const device::Tensor& fused) const {
            return fused.slice(1, column_begin, columns);
        }
    };
    /// [B, T, H, D] views of the three parts of a fused buffer.
    struct Views {
        device::Tensor query, key, value;
    };

    static std::vector<Projection> make_projections(ParameterCursor& cursor, const ModelConfig& config);
    [[nodiscard]] std::int64_t columns() const { return (heads_ + 2 * key_value_heads_) * head_dim_; }
    [[nodiscard]] Views views(const LayerContext& context, const device::Tensor& fused) const;
    [[nodiscard]] device::Tensor by_head(const LayerContext& context, const device::Tensor& heads) const;
    void rotate(const LayerContext& context, const Views& views, bool inverse) const;
    /// Gradients of the fused buffer; empties everything but record.input.
    [[nodiscard]] Activation backward_core(const LayerContext& context, Activation grad_heads,
                                           AttentionRecord& record) const;

    std::int64_t hidden_size_;
    std::int64_t heads_;
    std::int64_t key_value_heads_;
    std::int64_t head_dim_;
    float scale_;
    const RotaryTables& tables_;
    std::vector<Projection> projections_;
    Linear output_;
};

}  // namespace mfsdp::model
