#include "mfsdp/base/exact_sum.h"

#include "device/cpu/element.h"
#include "device/cpu/kernels.h"
#include "device/cpu/pieces.h"
#include "device/cpu/square_sum.h"

#include <cmath>
#include <mutex>
#include <span>

namespace mfsdp::device::cpu {

namespace {

float scaled(float gradient, const GradientScale& scale) { return gradient * scale.inverse_targets * scale.clip; }

/// D is the type of the direction.
template <class D>
void update_weight(const Context& context, const WeightUpdate& operation) {
    float* const weight = context.data<float>(operation.weight);
    const D* const direction = context.data<const D>(operation.direction);
    const std::int64_t weight_stride = row_stride(operation.weight);
    const std::int64_t direction_stride = row_stride(operation.direction);
    const Float8 decay = broadcast(operation.decay), step = broadcast(-operation.step);
    for_row_pieces(context.threads, operation.weight.rows(), operation.weight.columns(),
                   [=](std::int64_t row, std::int64_t begin, std::int64_t size) {
                       float* const w = weight + row * weight_stride + begin;
                       const D* const d = direction + row * direction_stride + begin;
                       for_vectors(size, [=](std::int64_t i, std::int64_t lanes) {
                           const Float8 decayed = decay * load_lanes(w + i, lanes);
                           store_lanes(w + i, fma(step, load_lanes(d + i, lanes), decayed), lanes);
                       });
                   });
}

}  // namespace

void run(const Context& context, const AdamWStep& step) {
    // Copies: what the loop reads must not alias what it writes.
    const GradientScale scale = step.scale;
    const float one_minus_beta1 = step.one_minus_beta1, beta2 = step.beta2, one_minus_beta2 = step.one_minus_beta2;
    const float root_correction = step.root_correction, epsilon = step.epsilon;
    for (const AdamWStep::Task& task : std::span(step.tasks).first(static_cast<std::size_t>(step.count))) {
        float* const weight = context.data<float>(task.weight);
        float* const exp_avg = context.data<float>(task.exp_avg);
        float* const exp_avg_sq = context.data<float>(task.exp_avg_sq);
        const float* const gradient = context.data<const float>(task.gradient);
        const float decay = task.decay, step_size = task.step_size;
        for_pieces(context.threads, task.weight.count(), kPieceElements, [=](std::int64_t begin, std::int64_t size) {
            float* const __restrict w = weight + begin;
            float* const __restrict m = exp_avg + begin;
            float* const __restrict v = exp_avg_sq + begin;
            const float* const __restrict in = gradient + begin;
            for (std::int64_t i = 0; i < size; ++i) {
                const float g = scaled(in[i], scale);
                m[i] = std::fma(one_minus_beta1, g - m[i], m[i]);
                v[i] = std::fma(one_minus_beta2, g * g, beta2 * v[i]);
                const float denominator = std::sqrt(v[i]) / root_correction + epsilon;
                w[i] = decay * w[i] - step_size * m[i] / denominator;
            }
        });
    }
}

void run(const Context& context, const MomentumUpdate& operation) {
    const std::int64_t rows = operation.update.rows(), columns = operation.update.columns();
    if (operation.update.count() == 0) return;
    float* const momentum = context.data<float>(operation.momentum);
    float* const update = context.data<float>(operation.update);
    double* const square_sums = context.data<double>(operation.square_sums);
    const float* const gradient = context.data<const float>(operation.gradient);
    const auto step = [=](std::int64_t begin, std::int64_t size) {
        float* const __restrict m = momentum + begin;
        float* const __restrict u = update + begin;
        const float* const __restrict in = gradient + begin;
        const float beta = operation.beta;
        for (std::int64_t i = 0; i < size; ++i) {
            const float g = operation.gradient_factor * scaled(in[i], operation.scale);
            m[i] = std::fma(beta, m[i], g);
            u[i] = operation.nesterov ? std::fma(beta, m[i], g) : m[i];
        }
        return u;
    };
    if (square_sums == nullptr) {
        for_pieces(context.threads, operation.update.count(), kPieceElements, step);
        return;
    }
    if (operation.by_columns) {
        square_sums_by_columns(
            context.threads, rows, columns, square_sums,
            [=](std::int64_t row, std::int64_t begin, std::int64_t size) { return step(row * columns + begin, size); });
        return;
    }
    square_sums_by_rows(
        context.threads, rows, columns, square_sums,
        [=](std::int64_t row, std::int64_t begin, std::int64_t size) { return step(row * columns + begin, size); });
}

void run(const Context& context, const WeightUpdate& operation) {
    with_float_type(operation.direction.dtype,
                    [&](auto type) { update_weight<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const SquareSum& operation) {
    const float* const in = context.data<const float>(operation.in);
    const std::int64_t rows = operation.in.rows(), columns = operation.in.columns();
    const std::int64_t stride = row_stride(operation.in);
    const std::int64_t rows_per_piece =
        std::max<std::int64_t>(1, 4 * kPieceElements / std::max<std::int64_t>(1, columns));
    std::int64_t* const words = context.data<std::int64_t>(operation.words);
    ExactSum total;
    std::copy_n(words, ExactSum::kWords, total.words.begin());
    std::int64_t non_finite_rows = 0;
    std::mutex merge;
    // Merging is integer addition: its order, that of the threads, does not show.
    for_pieces(context.threads, rows, rows_per_piece, [&](std::int64_t first, std::int64_t count) {
        ExactSum sum;
        std::int64_t non_finite = 0;
        for (std::int64_t row = first; row < first + count; ++row) {
            const double row_sum = square_sum_of_row(in + row * stride, columns);
            if (std::isfinite(row_sum)) {
                sum.add(row_sum);
            } else {
                ++non_finite;
            }
        }
        sum.normalise();
        const std::lock_guard lock(merge);
        total.add(sum);
        non_finite_rows += non_finite;
    });
    total.normalise();
    std::copy_n(total.words.begin(), ExactSum::kWords, words);
    words[ExactSum::kWords] += non_finite_rows;
}

}  // namespace mfsdp::device::cpu
