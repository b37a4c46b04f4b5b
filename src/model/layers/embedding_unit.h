#pragma once

#include "mfsdp/model/model_config.h"

#include "model/layers/linear.h"

namespace mfsdp::model {

/// Token embedding, plus learned positions for gpt2. It saves nothing: the tokens stay where they are.
class EmbeddingUnit {
  public:
    EmbeddingUnit(ParameterCursor& cursor, const ModelConfig& config)
        : hidden_size_(config.hidden_size),
          table_(cursor.next()),
          learned_positions_(config.family == ModelFamily::gpt2),
          positions_(learned_positions_ ? cursor.next() : 0) {}

    /// inputs [B, T] int32; returns the residual stream [n, C].
    [[nodiscard]] Activation forward(const LayerContext& context, UnitTensors weights,
                                     const device::Tensor& inputs) const;
    /// Writes the gradients of both tables.
    void backward(const LayerContext& context, UnitTensors gradients, const device::Tensor& residual_gradient,
                  const device::Tensor& inputs) const;

  private:
    std::int64_t hidden_size_;
    std::size_t table_;
    bool learned_positions_;
    std::size_t positions_;
};

}  // namespace mfsdp::model
