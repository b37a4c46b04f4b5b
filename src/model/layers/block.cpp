#include "model/layers/block.h"

#include "mfsdp/device/device.h"

namespace mfsdp::model {

using device::launch;
using device::Tensor;

void Block::attend(const LayerContext& context, UnitTensors weights, BlockRecord& record) const {
    Activation normed = first_norm_.forward(context, weights, record.input.tensor(), record.first_norm);
    attention_.forward(context, weights, std::move(normed), record.attention);
}

Activation Block::norm_middle(const LayerContext& context, UnitTensors weights, BlockRecord& record) const {
    return second_norm_.add_and_forward(context, weights, record.middle.tensor(), record.input.tensor(),
                                        record.second_norm);
}

Activation Block::forward(const LayerContext& context, UnitTensors weights, Activation input, BlockRecord& record,
                          bool keep) const {
    record.input = std::move(input);
    attend(context, weights, record);
    record.middle = attention_.project(context, weights, record.attention);
    if (!keep || recompute_ != RecomputeMode::none) {
        record.first_norm = {};
        record.attention = {};
    }
    Activation normed = norm_middle(context, weights, record);
    if (!keep) record.input.release();

    mlp_.forward(context, weights, std::move(normed), record.mlp);
    Activation out = mlp_.project(context, weights, record.mlp);
    launch(context.stream, device::Add{.out = out.tensor(), .a = record.middle.tensor(), .b = out.tensor()});
    if (!keep || recompute_ == RecomputeMode::block) {
        record.middle.release();
        record.second_norm = {};
        record.mlp = {};
    }
    return out;
}

void Block::backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                     const Tensor& residual_gradient, BlockRecord& record) const {
    if (recompute_ == RecomputeMode::block) {
        attend(context, weights, record);
        record.middle = attention_.project(context, weights, record.attention);
        mlp_.forward(context, weights, norm_middle(context, weights, record), record.mlp);
    }
    // The residual path passes the gradient on unchanged, so each branch adds its part to the one buffer.
    Activation grad_normed = mlp_.backward(context, weights, gradients, residual_gradient, record.mlp);
    second_norm_.backward(context, weights, gradients, residual_gradient, grad_normed.tensor(), record.middle.tensor(),
                          record.second_norm, true);
    grad_normed.release();
    record.middle.release();

    if (recompute_ == RecomputeMode::attention) attend(context, weights, record);
    grad_normed = attention_.backward(context, weights, gradients, residual_gradient, record.attention);
    first_norm_.backward(context, weights, gradients, residual_gradient, grad_normed.tensor(), record.input.tensor(),
                         record.first_norm, true);
    record.input.release();
}

}  // namespace mfsdp::model
