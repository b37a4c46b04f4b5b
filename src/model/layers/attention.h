#pragma once

#include "mfsdp/model/model_config.h"

#include "model/layers/head_norm.h"
#include "model/layers/linear.h"

#include <optional>
#include <vector>

namespace mfsdp::model {

/// Cosines and sines of the rotary angles, [T, D/2] float32 each; undefined tensors for families without rotary
/// positions.
struct RotaryTables {
    device::Tensor cosine;
    device::Tensor sine;
};

struct AttentionRecord {
    Activation input;            ///< [n, C], the normed residual stream
    Activation query_key_value;  ///< [n, (H + 2K) D]; query and key after rotation, qwen3: as projected
    Activation query_key;        ///< [n, (H + K) D] after norm and rotation, qwen3 only
    Activation query_reciprocal, key_reciprocal;  ///< of the norms, qwen3 only
    Activation heads;                             ///< [n, H D], before the output projection
    Activation log_sum_exp;                       ///< [B, H, T] float32
};

/// Causal self-attention with grouped queries. Query, key and value are column ranges of one buffer, whether one fused
/// projection writes them (gpt2) or three (llama, qwen3), so the families differ in their list of projections only, and
/// qwen3 in the norms between projection and rotation.
class Attention {
  public:
    /// `tables` may be filled later, but before the first forward.
    Attention(ParameterCursor& cursor, const ModelConfig& config, const RotaryTables& tables);

    /// Takes the normed input and fills `record`.
    void forward(const LayerContext& context, UnitTensors weights, Activation input, AttentionRecord& record) const;
    /// The branch's output [n, C] from a filled record.
    [[nodiscard]] Activation project(const LayerContext& context, UnitTensors weights,
                                     const AttentionRecord& record) const;
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
    struct HeadNorms {
        HeadNorm query, key;
    };
    /// [n, heads, D] views of the parts of a fused buffer.
    struct Views {
        device::Tensor query, key, value;
    };

    static std::vector<Projection> make_projections(ParameterCursor& cursor, const ModelConfig& config);
    [[nodiscard]] std::int64_t query_key_columns() const { return (heads_ + key_value_heads_) * head_dim_; }
    [[nodiscard]] std::int64_t columns() const { return query_key_columns() + key_value_heads_ * head_dim_; }
    /// `value` is undefined in a buffer of query and key alone.
    [[nodiscard]] Views views(const device::Tensor& fused) const;
    [[nodiscard]] device::Tensor by_sequence(const LayerContext& context, const device::Tensor& heads) const;
    [[nodiscard]] device::Tensor by_head(const device::Tensor& heads) const;
    /// What the attention itself reads: query and key after norm and rotation.
    [[nodiscard]] Views attended(const AttentionRecord& record) const;
    void normalise(const LayerContext& context, UnitTensors weights, AttentionRecord& record) const;
    void rotate(const LayerContext& context, const Views& views, bool inverse) const;
    /// Gradients of the fused buffer; empties everything but record.input.
    [[nodiscard]] Activation backward_core(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                                           Activation grad_heads, AttentionRecord& record) const;

    std::int64_t hidden_size_;
    std::int64_t heads_;
    std::int64_t key_value_heads_;
    std::int64_t head_dim_;
    float scale_;
    const RotaryTables& tables_;
    std::vector<Projection> projections_;
    Linear output_;
    std::optional<HeadNorms> norms_;
};

}  // namespace mfsdp::model
