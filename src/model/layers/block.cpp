#include "model/layers/block.h"

#include "mfsdp/device/device.h"

namespace mfsdp::model {

using device::launch;
using device::Tensor;

Activation Block::forward(const LayerContext& context, UnitTensors weights, Activation input,
                          BlockRecord& record) const {
    record.input = std::move(input);
    Activation normed = first_norm_.forward(context, weights, record.input.tensor(), record.first_norm);
    record.middle = attention_.forward(context, weights, std::move(normed), record.attention);
    launch(context.stream,
           device::Add{.out = record.middle.tensor(), .a = record.input.tensor(), .b = record.middle.tensor()});

    normed = second_norm_.forward(context, weights, record.middle.tensor(), record.second_norm);
    Activation out = mlp_.forward(context, weights, std::move(normed), record.mlp);
    launch(context.stream, device::Add{.out = out.tensor(), .a = record.middle.tensor(), .b = out.tensor()});
    return out;
}

void Block::backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                     const Tensor& residual_gradient, BlockRecord& record) const {
    // The residual path passes the gradient on unchanged, so each branch adds its part to the one buffer.
    Activation grad_normed = mlp_.backward(context, weights, gradients, residual_gradient, record.mlp);
    second_norm_.backward(context, weights, gradients, residual_gradient, grad_normed.tensor(), record.middle.tensor(),
                          record.second_norm, true);
    grad_normed.release();
    record.middle.release();

    grad_normed = attention_.backward(context, weights, gradients, residual_gradient, record.attention);
    first_norm_.backward(context, weights, gradients, residual_gradient, grad_normed.tensor(), record.input.tensor(),
                         record.first_norm, true);
    record.input.release();
}

}  // namespace mfsdp::model
