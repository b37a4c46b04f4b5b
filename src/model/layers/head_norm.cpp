#include "model/layers/head_norm.h"

#include "mfsdp/device/device.h"

namespace mfsdp::model {

using device::launch;
using device::Tensor;

Activation HeadNorm::forward(const LayerContext& context, UnitTensors weights, const Tensor& out,
                             const Tensor& in) const {
    Activation reciprocal(context, {in.shape[0], in.shape[1]}, device::DType::float32);
    launch(context.stream, device::RmsNormForward{.out = out,
                                                  .reciprocal_rms = reciprocal.tensor(),
                                                  .input = in,
                                                  .weight = weights[weight_],
                                                  .epsilon = epsilon_});
    return reciprocal;
}

void HeadNorm::backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients, const Tensor& grad,
                        const Tensor& in, const Activation& reciprocal) const {
    launch(context.stream, device::RmsNormBackward{.grad_input = grad,
                                                   .grad_weight = gradients[weight_],
                                                   .grad_out = grad,
                                                   .input = in,
                                                   .reciprocal_rms = reciprocal.tensor(),
                                                   .weight = weights[weight_]});
}

}  // namespace mfsdp::model
