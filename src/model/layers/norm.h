#pragma once

#include "mfsdp/model/model_config.h"

#include "model/layers/linear.h"

namespace mfsdp::model {

/// What a norm saves beside its input, which the block keeps anyway.
struct NormRecord {
    Activation mean;        ///< [n] float32, LayerNorm only
    Activation reciprocal;  ///< [n] float32, 1 / standard deviation or 1 / root mean square
};

/// LayerNorm (gpt2: weight and bias) or RMSNorm (llama, qwen3: weight) over the hidden dimension.
class Norm {
  public:
    Norm(ParameterCursor& cursor, const ModelConfig& config)
        : weight_(cursor.next()),
          centred_(config.family == ModelFamily::gpt2),
          bias_(centred_ ? cursor.next() : 0),
          epsilon_(static_cast<float>(config.norm_epsilon)) {}

    /// The norm of in [n, C]; fills `record`.
    [[nodiscard]] Activation forward(const LayerContext& context, UnitTensors weights, const device::Tensor& in,
                                     NormRecord& record) const;
    /// The same of stream + residual, [n, C] both, which becomes the stream.
    [[nodiscard]] Activation add_and_forward(const LayerContext& context, UnitTensors weights,
                                             const device::Tensor& stream, const device::Tensor& residual,
                                             NormRecord& record) const;
    /// Writes the parameters' gradients; adds to grad_in or writes it; empties `record`.
    void backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                  const device::Tensor& grad_in, const device::Tensor& grad_out, const device::Tensor& in,
                  NormRecord& record, bool accumulate_input) const;

  private:
    [[nodiscard]] Activation launch_forward(const LayerContext& context, UnitTensors weights, const device::Tensor& in,
                                            const device::Tensor& residual, NormRecord& record) const;

    std::size_t weight_;
    bool centred_;
    std::size_t bias_;
    float epsilon_;
};

}  // namespace mfsdp::model
