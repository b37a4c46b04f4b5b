#pragma once

#include "mfsdp/model/model_config.h"

#include "model/layers/linear.h"

#include <optional>

namespace mfsdp::model {

struct MlpRecord {
    Activation input;   ///< [n, C], the normed residual stream
    Activation gate;    ///< [n, F], before the activation function
    Activation up;      ///< [n, F], SwiGLU only
    Activation hidden;  ///< [n, F], before the last projection
};

/// down(gelu(gate x)) for gpt2 (where gate is called c_fc), down(silu(gate x) * up x) for llama and qwen3.
class Mlp {
  public:
    Mlp(ParameterCursor& cursor, const ModelConfig& config);

    /// Takes the normed input and fills `record`.
    void forward(const LayerContext& context, UnitTensors weights, Activation input, MlpRecord& record) const;
    /// The branch's output [n, C] from a filled record.
    [[nodiscard]] Activation project(const LayerContext& context, UnitTensors weights, const MlpRecord& record) const;
    /// Returns the gradient of the normed input; writes the parameters' gradients; empties `record`.
    [[nodiscard]] Activation backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                                      const device::Tensor& grad_out, MlpRecord& record) const;

  private:
    std::int64_t hidden_size_;
    std::int64_t intermediate_size_;
    Linear gate_;
    std::optional<Linear> up_;
    Linear down_;
};

}  // namespace mfsdp::model
