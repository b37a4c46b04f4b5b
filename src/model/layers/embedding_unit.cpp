#include "model/layers/embedding_unit.h"

#include "mfsdp/device/device.h"

namespace mfsdp::model {

using device::launch;
using device::Tensor;

Activation EmbeddingUnit::forward(const LayerContext& context, UnitTensors weights, const Tensor& inputs) const {
    Activation out(context, {context.tokens(), hidden_size_});
    launch(context.stream,
           device::EmbeddingForward{
               .out = out.tensor(), .table = weights[table_], .ids = inputs.reshape({context.tokens()})});
    if (learned_positions_) {
        launch(context.stream, device::PositionForward{.x = out.tensor().reshape(
                                                           {context.batch_size, context.sequence_length, hidden_size_}),
                                                       .positions = weights[positions_]});
    }
    return out;
}

void EmbeddingUnit::backward(const LayerContext& context, UnitTensors gradients, const Tensor& residual_gradient,
                             const Tensor& inputs) const {
    launch(context.stream, device::EmbeddingBackward{.grad_table = gradients[table_],
                                                     .grad_out = residual_gradient,
                                                     .ids = inputs.reshape({context.tokens()})});
    if (learned_positions_) {
        launch(context.stream,
               device::PositionBackward{
                   .grad_positions = gradients[positions_],
                   .grad_x = residual_gradient.reshape({context.batch_size, context.sequence_length, hidden_size_})});
    }
}

}  // namespace mfsdp::model
