#pragma once

#include "mfsdp/model/model_config.h"

#include "model/layers/linear.h"

namespace mfsdp::model {

/// RMSNorm of every head by itself, one weight [D] for all heads: qwen3's norm of queries and keys. Tensors are
/// [n, heads, D], parts of larger buffers.
class HeadNorm {
  public:
    HeadNorm(ParameterCursor& cursor, const ModelConfig& config)
        : weight_(cursor.next()), epsilon_(static_cast<float>(config.norm_epsilon)) {}

    /// out = the norm of in; returns the reciprocal root mean squares [n, heads] for the backward.
    [[nodiscard]] Activation forward(const LayerContext& context, UnitTensors weights, const device::Tensor& out,
                                     const device::Tensor& in) const;
    /// Writes the weight's gradient; turns the gradient of the output into that of the input in place.
    void backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients, const device::Tensor& grad,
                  const device::Tensor& in, const Activation& reciprocal) const;

  private:
    std::size_t weight_;
    float epsilon_;
};

}  // namespace mfsdp::model
