#include "model/layers/norm.h"

#include "mfsdp/device/device.h"

namespace mfsdp::model {

using device::launch;
using device::Tensor;

Activation Norm::forward(const LayerContext& context, UnitTensors weights, const Tensor& in, NormRecord& record) const {
    return launch_forward(context, weights, in, {}, record);
}

Activation Norm::add_and_forward(const LayerContext& context, UnitTensors weights, const Tensor& stream,
                                 const Tensor& residual, NormRecord& record) const {
    return launch_forward(context, weights, stream, residual, record);
}

Activation Norm::launch_forward(const LayerContext& context, UnitTensors weights, const Tensor& in,
                                const Tensor& residual, NormRecord& record) const {
    const std::int64_t rows = in.rows();
    const Tensor sum = residual.defined() ? in : Tensor{};
    Activation out(context, {rows, in.columns()});
    record.reciprocal = Activation(context, {rows}, device::DType::float32);
    if (centred_) {
        record.mean = Activation(context, {rows}, device::DType::float32);
        launch(context.stream, device::LayerNormForward{.out = out.tensor(),
                                                        .mean = record.mean.tensor(),
                                                        .reciprocal_std = record.reciprocal.tensor(),
                                                        .input = in,
                                                        .weight = weights[weight_],
                                                        .bias = weights[bias_],
                                                        .epsilon = epsilon_,
                                                        .residual = residual,
                                                        .sum = sum});
    } else {
        launch(context.stream, device::RmsNormForward{.out = out.tensor(),
                                                      .reciprocal_rms = record.reciprocal.tensor(),
                                                      .input = in,
                                                      .weight = weights[weight_],
                                                      .epsilon = epsilon_,
                                                      .residual = residual,
                                                      .sum = sum});
    }
    return out;
}

void Norm::backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients, const Tensor& grad_in,
                    const Tensor& grad_out, const Tensor& in, NormRecord& record, bool accumulate_input) const {
    if (centred_) {
        launch(context.stream, device::LayerNormBackward{.grad_input = grad_in,
                                                         .grad_weight = gradients[weight_],
                                                         .grad_bias = gradients[bias_],
                                                         .grad_out = grad_out,
                                                         .input = in,
                                                         .mean = record.mean.tensor(),
                                                         .reciprocal_std = record.reciprocal.tensor(),
                                                         .weight = weights[weight_],
                                                         .accumulate_input = accumulate_input});
    } else {
        launch(context.stream, device::RmsNormBackward{.grad_input = grad_in,
                                                       .grad_weight = gradients[weight_],
                                                       .grad_out = grad_out,
                                                       .input = in,
                                                       .reciprocal_rms = record.reciprocal.tensor(),
                                                       .weight = weights[weight_],
                                                       .accumulate_input = accumulate_input});
    }
    record = {};
}

}  // namespace mfsdp::model
