#pragma once

#include "mfsdp/model/model_config.h"

#include "model/layers/linear.h"
#include "model/layers/vocabulary_panel.h"

namespace mfsdp::model {

/// Token embedding, plus learned positions for gpt2. It saves nothing: the tokens stay where they are.
class EmbeddingUnit {
  public:
    EmbeddingUnit(ParameterCursor& cursor, const ModelConfig& config)
        : hidden_size_(config.hidden_size),
          table_(cursor.next()),
          learned_positions_(config.family == ModelFamily::gpt2),
          positions_(learned_positions_ ? cursor.next() : 0) {}

    /// inputs [B, T] int32: writes the rows of `residual` [n, C] whose token lies in the panel. The first panel makes
    /// `residual`, the last one adds the positions.
    void forward(const LayerContext& context, UnitTensors weights, const VocabularyPanel& panel,
                 const device::Tensor& inputs, Activation& residual) const;
    /// Writes the gradient of the panel, with the last one that of the positions too.
    void backward(const LayerContext& context, UnitTensors gradients, const VocabularyPanel& panel,
                  const device::Tensor& residual_gradient, const device::Tensor& inputs) const;

  private:
    [[nodiscard]] device::Tensor by_position(const LayerContext& context, const device::Tensor& residual) const;

    std::int64_t hidden_size_;
    std::size_t table_;
    bool learned_positions_;
    std::size_t positions_;
};

}  // namespace mfsdp::model
