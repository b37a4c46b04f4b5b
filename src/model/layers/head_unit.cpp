#include "model/layers/head_unit.h"

#include <algorithm>

namespace mfsdp::model {

using device::launch;
using device::Tensor;

namespace {

/// Tokens whose logits are kept at a time. Constant: the order in which a head gradient is added must not depend on
/// memory or machine.
constexpr std::int64_t kChunkTokens = 256;

}  // namespace

Tensor HeadUnit::Chunk::logits(std::int64_t panel_begin, std::int64_t panel_rows) const {
    const std::int64_t tokens = normed.rows();
    return memory.slice(0, tokens * panel_begin, tokens * panel_rows).reshape({tokens, panel_rows});
}

HeadUnit::Scratch::Scratch(const LayerContext& context, std::int64_t vocab_size) {
    const std::int64_t tokens = std::min(kChunkTokens, context.tokens());
    maximum = Activation(context, {context.tokens()});
    sum = Activation(context, {context.tokens()});
    target_logit = Activation(context, {context.tokens()});
    log_z_squares = Activation(context, {1}, device::DType::float64);
    logits = Activation(context, {tokens * vocab_size});
}

template <class Body>
void HeadUnit::for_each_panel(Body body) const {
    for (std::int64_t begin = 0; begin < vocab_size_; begin += device::kVocabularyPanelRows) {
        body(begin, std::min(device::kVocabularyPanelRows, vocab_size_ - begin));
    }
}

HeadUnit::Chunk HeadUnit::chunk(const Scratch& scratch, const Tensor& normed, const Tensor& targets,
                                std::int64_t begin) const {
    const std::int64_t tokens = std::min(kChunkTokens, normed.rows() - begin);
    return {.normed = normed.slice(0, begin, tokens),
            .targets = targets.slice(0, begin, tokens),
            .maximum = scratch.maximum.tensor().slice(0, begin, tokens),
            .sum = scratch.sum.tensor().slice(0, begin, tokens),
            .target_logit = scratch.target_logit.tensor().slice(0, begin, tokens),
            .memory = scratch.logits.tensor().slice(0, 0, tokens * vocab_size_)};
}

void HeadUnit::score(const LayerContext& context, const Tensor& weight, const Chunk& chunk) const {
    for_each_panel([&](std::int64_t begin, std::int64_t rows) {
        const Tensor logits = chunk.logits(begin, rows);
        launch(
            context.stream,
            device::Matmul{.out = logits, .a = chunk.normed, .b = weight.slice(0, begin, rows), .transpose_b = true});
        launch(context.stream, device::LogSumExpUpdate{.maximum = chunk.maximum,
                                                       .sum = chunk.sum,
                                                       .target_logit = chunk.target_logit,
                                                       .logits = logits,
                                                       .targets = chunk.targets,
                                                       .panel_begin = begin,
                                                       .first = begin == 0});
    });
}

void HeadUnit::sum_losses(const LayerContext& context, const Scratch& scratch, const Tensor& targets,
                          const MicroBatch& micro_batch) {
    launch(context.stream, device::LossSum{.loss_sum = micro_batch.loss_sum,
                                           .target_count = micro_batch.target_count,
                                           .log_z_squares = scratch.log_z_squares.tensor(),
                                           .maximum = scratch.maximum.tensor(),
                                           .sum = scratch.sum.tensor(),
                                           .target_logit = scratch.target_logit.tensor(),
                                           .targets = targets});
}

void HeadUnit::differentiate(const LayerContext& context, const Chunk& chunk, std::int64_t panel_begin,
                             std::int64_t panel_rows) const {
    const Tensor logits = chunk.logits(panel_begin, panel_rows);
    launch(context.stream, device::CrossEntropyBackward{.grad = logits,
                                                        .logits = logits,
                                                        .maximum = chunk.maximum,
                                                        .sum = chunk.sum,
                                                        .targets = chunk.targets,
                                                        .panel_begin = panel_begin});
}

void HeadUnit::backward_chunk(const LayerContext& context, const Tensor& weight, const Tensor& grad_weight,
                              const Chunk& chunk, bool first_chunk) const {
    for_each_panel([&](std::int64_t begin, std::int64_t rows) {
        differentiate(context, chunk, begin, rows);
        launch(context.stream, device::Matmul{.out = grad_weight.slice(0, begin, rows),
                                              .a = chunk.logits(begin, rows),
                                              .b = chunk.normed,
                                              .transpose_a = true,
                                              .beta = first_chunk ? 0.0F : 1.0F});
    });
    // The chunk's normed values were read for the last time, so their gradient takes their place.
    for_each_panel([&](std::int64_t begin, std::int64_t rows) {
        launch(context.stream, device::Matmul{.out = chunk.normed,
                                              .a = chunk.logits(begin, rows),
                                              .b = weight.slice(0, begin, rows),
                                              .beta = begin == 0 ? 0.0F : 1.0F});
    });
}

Activation HeadUnit::train(const LayerContext& context, UnitTensors weights, UnitTensors gradients, Activation input,
                           const MicroBatch& micro_batch) const {
    NormRecord record;
    const Activation normed = norm_.forward(context, weights, input.tensor(), record);
    const Tensor targets = micro_batch.targets.reshape({context.tokens()});
    {
        const Scratch scratch(context, vocab_size_);
        for (std::int64_t begin = 0; begin < context.tokens(); begin += kChunkTokens) {
            const Chunk part = chunk(scratch, normed.tensor(), targets, begin);
            score(context, weights[weight_], part);
            backward_chunk(context, weights[weight_], gradients[weight_], part, begin == 0);
        }
        sum_losses(context, scratch, targets, micro_batch);
    }
    Activation grad_input(context, {context.tokens(), hidden_size_});
    norm_.backward(context, weights, gradients, grad_input.tensor(), normed.tensor(), input.tensor(), record, false);
    return grad_input;
}

void HeadUnit::evaluate(const LayerContext& context, UnitTensors weights, Activation input,
                        const MicroBatch& micro_batch) const {
    NormRecord record;
    const Activation normed = norm_.forward(context, weights, input.tensor(), record);
    input.release();
    const Tensor targets = micro_batch.targets.reshape({context.tokens()});
    const Scratch scratch(context, vocab_size_);
    for (std::int64_t begin = 0; begin < context.tokens(); begin += kChunkTokens) {
        const Chunk part = chunk(scratch, normed.tensor(), targets, begin);
        score(context, weights[weight_], part);
    }
    sum_losses(context, scratch, targets, micro_batch);
}

void HeadUnit::logits(const LayerContext& context, UnitTensors weights, Activation input, const Tensor& out) const {
    NormRecord record;
    const Activation normed = norm_.forward(context, weights, input.tensor(), record);
    for_each_panel([&](std::int64_t begin, std::int64_t rows) {
        launch(context.stream, device::Matmul{.out = out.slice(1, begin, rows),
                                              .a = normed.tensor(),
                                              .b = weights[weight_].slice(0, begin, rows),
                                              .transpose_b = true});
    });
}

}  // namespace mfsdp::model
