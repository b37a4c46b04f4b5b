#include "model/layers/head_unit.h"

#include <algorithm>

namespace mfsdp::model {

using device::DType;
using device::launch;
using device::Tensor;

namespace {

/// Tokens whose logits of a whole panel take 16 MiB. Constant: the order in which a head gradient is added must not
/// depend on memory or machine.
constexpr std::int64_t kChunkTokens = 1024;

}  // namespace

bool HeadUnit::keeps_logits(const LayerContext& context) const {
    return context.tokens() * vocab_size_ * device::size_of(DType::float32) <= kept_logit_bytes_;
}

Activation HeadUnit::chunk_logits(const LayerContext& context, const VocabularyPanel& panel,
                                  const HeadRecord& record) const {
    if (record.logits.tensor().defined()) return {};
    return Activation(context, {std::min(kChunkTokens, context.tokens()) * panel.tokens}, DType::float32);
}

template <class Body>
void HeadUnit::for_each_chunk(const LayerContext& context, const VocabularyPanel& panel, const MicroBatch& micro_batch,
                              const HeadRecord& record, const Tensor& scratch, Body body) const {
    const Tensor targets = micro_batch.targets.reshape({context.tokens()});
    for (std::int64_t begin = 0; begin < context.tokens(); begin += kChunkTokens) {
        const std::int64_t tokens = std::min(kChunkTokens, context.tokens() - begin);
        const Tensor logits =
            scratch.defined() ? scratch.slice(0, 0, tokens * panel.tokens)
                              : record.logits.tensor().slice(0, context.tokens() * panel.begin + begin * panel.tokens,
                                                             tokens * panel.tokens);
        body(Chunk{.begin = begin,
                   .normed = record.normed.tensor().slice(0, begin, tokens),
                   .targets = targets.slice(0, begin, tokens),
                   .maximum = record.maximum.tensor().slice(0, begin, tokens),
                   .sum = record.sum.tensor().slice(0, begin, tokens),
                   .target_logit = record.target_logit.tensor().slice(0, begin, tokens),
                   .logits = logits.reshape({tokens, panel.tokens})});
    }
}

void HeadUnit::compute_logits(const LayerContext& context, const Tensor& weight, const Chunk& chunk) const {
    launch(context.stream, device::Matmul{.out = chunk.logits, .a = chunk.normed, .b = weight, .transpose_b = true});
}

void HeadUnit::score(const LayerContext& context, UnitTensors weights, const VocabularyPanel& panel,
                     const MicroBatch& micro_batch, Activation& residual, HeadRecord& record, bool train) const {
    const std::int64_t tokens = context.tokens();
    if (panel.is_first) {
        record.input = std::move(residual);
        record.normed = norm_.forward(context, weights, record.input.tensor(), record.norm);
        record.maximum = Activation(context, {tokens}, DType::float32);
        record.sum = Activation(context, {tokens}, DType::float32);
        record.target_logit = Activation(context, {tokens}, DType::float32);
        if (!train) record.input.release();
        if (train && keeps_logits(context)) {
            record.logits = Activation(context, {tokens * vocab_size_}, DType::float32);
        }
    }
    if (panel.tokens > 0) {
        const Activation scratch = chunk_logits(context, panel, record);
        for_each_chunk(context, panel, micro_batch, record, scratch.tensor(), [&](const Chunk& chunk) {
            compute_logits(context, token_rows(weights[weight_], panel), chunk);
            launch(context.stream, device::LogSumExpUpdate{.maximum = chunk.maximum,
                                                           .sum = chunk.sum,
                                                           .target_logit = chunk.target_logit,
                                                           .logits = chunk.logits,
                                                           .targets = chunk.targets,
                                                           .panel_begin = panel.begin,
                                                           .first = panel.is_first});
        });
    }
    if (!panel.is_last) return;
    launch(context.stream, device::LossSum{.loss_sum = micro_batch.loss_sum,
                                           .target_count = micro_batch.target_count,
                                           .log_z_squares = micro_batch.log_z_squares,
                                           .maximum = record.maximum.tensor(),
                                           .sum = record.sum.tensor(),
                                           .target_logit = record.target_logit.tensor(),
                                           .targets = micro_batch.targets.reshape({tokens})});
    if (!train) record = {};
}

void HeadUnit::backward_tokens(const LayerContext& context, const Tensor& weight, const Tensor& grad_weight,
                               const VocabularyPanel& panel, const MicroBatch& micro_batch, HeadRecord& record) const {
    const bool kept = record.logits.tensor().defined();
    const Activation scratch = chunk_logits(context, panel, record);
    // float32 gradients take the place of the logits.
    Activation rounded;
    if (context.compute_type != DType::float32) {
        rounded = Activation(context, {std::min(kChunkTokens, context.tokens()) * panel.tokens});
    }
    // A gradient that is to be rounded is rounded once, after the last chunk.
    Activation sum;
    Tensor grad_sum = grad_weight;
    if (grad_weight.defined() && context.tokens() > kChunkTokens && grad_weight.dtype != DType::float32) {
        sum = Activation(context, {panel.tokens, hidden_size_}, DType::float32);
        grad_sum = sum.tensor();
    }
    const bool first_panel = panel.begin + panel.tokens == vocab_size_;  // of those with tokens, in falling order
    for_each_chunk(context, panel, micro_batch, record, scratch.tensor(), [&](const Chunk& chunk) {
        if (!kept) compute_logits(context, weight, chunk);
        const std::int64_t tokens = chunk.normed.rows();
        const Tensor grad = rounded.tensor().defined()
                                ? rounded.tensor().slice(0, 0, tokens * panel.tokens).reshape({tokens, panel.tokens})
                                : chunk.logits;
        launch(context.stream, device::CrossEntropyBackward{.grad = grad,
                                                            .logits = chunk.logits,
                                                            .maximum = chunk.maximum,
                                                            .sum = chunk.sum,
                                                            .targets = chunk.targets,
                                                            .panel_begin = panel.begin,
                                                            .z_loss = z_loss_});
        launch(context.stream, device::Matmul{.out = record.grad_normed.tensor().slice(0, chunk.begin, tokens),
                                              .a = grad,
                                              .b = weight,
                                              .beta = first_panel ? 0.0F : 1.0F});
        if (!grad_sum.defined()) return;
        launch(context.stream, device::Matmul{.out = grad_sum,
                                              .a = grad,
                                              .b = chunk.normed,
                                              .transpose_a = true,
                                              .beta = chunk.begin == 0 ? 0.0F : 1.0F});
    });
    if (sum.tensor().defined()) launch(context.stream, device::Copy{.out = grad_weight, .in = sum.tensor()});
}

Activation HeadUnit::backward_norm(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                                   HeadRecord& record) const {
    record.logits.release();
    record.normed.release();
    if (context.compute_type != DType::float32) {
        Activation rounded(context, {context.tokens(), hidden_size_});
        launch(context.stream, device::Copy{.out = rounded.tensor(), .in = record.grad_normed.tensor()});
        record.grad_normed = std::move(rounded);
    }
    Activation grad_input(context, {context.tokens(), hidden_size_});
    norm_.backward(context, weights, gradients, grad_input.tensor(), record.grad_normed.tensor(), record.input.tensor(),
                   record.norm, false);
    record = {};
    return grad_input;
}

void HeadUnit::backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                        const VocabularyPanel& panel, const MicroBatch& micro_batch, HeadRecord& record,
                        Activation& residual_gradient) const {
    if (panel.is_last) record.grad_normed = Activation(context, {context.tokens(), hidden_size_}, DType::float32);
    const Tensor& grad_weight = gradients[weight_];
    if (panel.tokens > 0) {
        backward_tokens(context, token_rows(weights[weight_], panel),
                        grad_weight.defined() ? token_rows(grad_weight, panel) : Tensor{}, panel, micro_batch, record);
    }
    if (grad_weight.defined() && panel.tokens < panel.rows) {
        const Tensor padding = grad_weight.slice(0, panel.tokens, panel.rows - panel.tokens);
        launch(context.stream, device::Fill{.out = padding, .value = 0.0});
    }
    if (panel.is_first) residual_gradient = backward_norm(context, weights, gradients, record);
}

void HeadUnit::logits(const LayerContext& context, UnitTensors weights, const VocabularyPanel& panel,
                      const MicroBatch& micro_batch, Activation& residual, HeadRecord& record) const {
    const Tensor& out = micro_batch.logits;
    const std::int64_t rows = out.shape[0] * out.shape[1];
    if (panel.is_first) {
        record.input = std::move(residual);
        if (rows < context.tokens()) {
            Activation last(context, {rows, hidden_size_});
            const Tensor all =
                record.input.tensor().reshape({context.batch_size, context.sequence_length * hidden_size_});
            launch(context.stream,
                   device::Copy{.out = last.tensor(),
                                .in = all.slice(1, (context.sequence_length - 1) * hidden_size_, hidden_size_)});
            record.input = std::move(last);
        }
        record.normed = norm_.forward(context, weights, record.input.tensor(), record.norm);
        record.input.release();
    }
    if (panel.tokens > 0) {
        launch(context.stream,
               device::Matmul{.out = out.reshape({rows, vocab_size_}).slice(1, panel.begin, panel.tokens),
                              .a = record.normed.tensor(),
                              .b = token_rows(weights[weight_], panel),
                              .transpose_b = true});
    }
    if (panel.is_last) record = {};
}

}  // namespace mfsdp::model
