#include "model/layers/linear.h"

#include "mfsdp/device/device.h"

namespace mfsdp::model {

using device::launch;
using device::Tensor;

void Linear::forward(const LayerContext& context, UnitTensors weights, const Tensor& out, const Tensor& in,
                     const Tensor& gelu) const {
    launch(context.stream, device::Matmul{.out = out,
                                          .a = in,
                                          .b = weights[weight_],
                                          .transpose_b = true,
                                          .bias = has_bias_ ? weights[bias_] : Tensor{},
                                          .gelu = gelu});
}

void Linear::backward_parameters(const LayerContext& context, UnitTensors gradients, const Tensor& grad_out,
                                 const Tensor& in) const {
    if (gradients[weight_].defined()) {
        launch(context.stream, device::Matmul{.out = gradients[weight_], .a = grad_out, .b = in, .transpose_a = true});
    }
    if (has_bias_ && gradients[bias_].defined())
        launch(context.stream, device::ColumnSum{.out = gradients[bias_], .in = grad_out});
}

void Linear::backward_input(const LayerContext& context, UnitTensors weights, const Tensor& grad_in,
                            const Tensor& grad_out, bool accumulate) const {
    launch(context.stream,
           device::Matmul{.out = grad_in, .a = grad_out, .b = weights[weight_], .beta = accumulate ? 1.0F : 0.0F});
}

}  // namespace mfsdp::model
