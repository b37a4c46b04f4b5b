#include "model/layers/embedding_unit.h"

#include "mfsdp/device/device.h"

namespace mfsdp::model {

using device::launch;
using device::Tensor;

Tensor EmbeddingUnit::by_position(const LayerContext& context, const Tensor& residual) const {
    return residual.reshape({context.batch_size, context.sequence_length, hidden_size_});
}

void EmbeddingUnit::forward(const LayerContext& context, UnitTensors weights, const VocabularyPanel& panel,
                            const Tensor& inputs, Activation& residual) const {
    if (panel.is_first) residual = Activation(context, {context.tokens(), hidden_size_});
    launch(context.stream, device::EmbeddingForward{.out = residual.tensor(),
                                                    .table = weights[table_],
                                                    .ids = inputs.reshape({context.tokens()}),
                                                    .row_begin = panel.begin});
    if (learned_positions_ && panel.is_last) {
        launch(context.stream,
               device::PositionForward{.x = by_position(context, residual.tensor()), .positions = weights[positions_]});
    }
}

void EmbeddingUnit::backward(const LayerContext& context, UnitTensors gradients, const VocabularyPanel& panel,
                             const Tensor& residual_gradient, const Tensor& inputs) const {
    if (gradients[table_].defined()) {
        launch(context.stream, device::EmbeddingBackward{.grad_table = gradients[table_],
                                                         .grad_out = residual_gradient,
                                                         .ids = inputs.reshape({context.tokens()}),
                                                         .row_begin = panel.begin});
    }
    if (learned_positions_ && panel.is_last && gradients[positions_].defined()) {
        launch(context.stream, device::PositionBackward{.grad_positions = gradients[positions_],
                                                        .grad_x = by_position(context, residual_gradient)});
    }
}

}  // namespace mfsdp::model
