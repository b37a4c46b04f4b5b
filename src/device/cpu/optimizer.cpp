#include "mfsdp/base/exact_sum.h"

#include "device/cpu/element.h"
#include "device/cpu/kernels.h"
#include "device/cpu/pieces.h"
#include "device/cpu/square_sum.h"

#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <span>

namespace mfsdp::device::cpu {

namespace {

float scaled(float gradient, const GradientScale& scale) { return gradient * scale.inverse_targets * scale.clip; }

std::int64_t row_stride(const Tensor& matrix) { return matrix.rank == 2 ? matrix.strides[0] : matrix.columns(); }

template <class T>
double frobenius_norm(const Context& context, const Tensor& matrix, const T* in) {
    // Blocks are summed in parallel, a wave at a time, and their sums added in order by the calling thread.
    constexpr std::int64_t kWave = 1024;
    constexpr std::int64_t kBlocksPerPiece = 8;
    const std::int64_t columns = matrix.columns(), stride = row_stride(matrix);
    const std::int64_t blocks_per_row = (columns + kSumBlock - 1) / kSumBlock;
    const std::int64_t blocks = matrix.rows() * blocks_per_row;
    std::array<double, kWave> sums{};
    double total = 0.0, row_sum = 0.0;
    for (std::int64_t wave = 0; wave < blocks; wave += kWave) {
        const std::int64_t wave_blocks = std::min(kWave, blocks - wave);
        for_pieces(context.threads, wave_blocks, kBlocksPerPiece, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t i = first; i < first + count; ++i) {
                const std::int64_t row = (wave + i) / blocks_per_row;
                const std::int64_t begin = (wave + i) % blocks_per_row * kSumBlock;
                sums[static_cast<std::size_t>(i)] =
                    square_sum_of_block(in + row * stride + begin, std::min(kSumBlock, columns - begin));
            }
        });
        for (std::int64_t i = 0; i < wave_blocks; ++i) {
            row_sum += sums[static_cast<std::size_t>(i)];
            if ((wave + i + 1) % blocks_per_row != 0) continue;
            total += row_sum;
            row_sum = 0.0;
        }
    }
    return std::sqrt(total);
}

template <class T>
void divide_by_norm(const Context& context, const DivideByNorm& operation) {
    T* const out = context.data<T>(operation.out);
    const float* const in = context.data<const float>(operation.in);
    const std::int64_t in_stride = row_stride(operation.in), out_stride = row_stride(operation.out);
    const double norm = *context.data<const double>(operation.norm);
    const auto single = static_cast<float>(norm);
    const bool fits = single >= std::numeric_limits<float>::min() && single <= std::numeric_limits<float>::max();
    const bool divide_in_float = fits || !std::isfinite(norm);
    for_row_pieces(context.threads, operation.in.rows(), operation.in.columns(),
                   [=](std::int64_t row, std::int64_t begin, std::int64_t size) {
                       T* const target = out + row * out_stride + begin;
                       const float* const source = in + row * in_stride + begin;
                       if (norm == 0.0) {
                           std::fill_n(target, size, rounded<T>(0.0F));
                       } else if (divide_in_float) {
                           for_vectors(size, [=](std::int64_t i, std::int64_t lanes) {
                               store_lanes(target + i, load_lanes(source + i, lanes) / broadcast(single), lanes);
                           });
                       } else {
                           for (std::int64_t i = 0; i < size; ++i) {
                               const double quotient = static_cast<double>(source[i]) / norm;
                               target[i] = rounded<T>(static_cast<float>(quotient));
                           }
                       }
                   });
}

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
    float* const momentum = context.data<float>(operation.momentum);
    float* const update = context.data<float>(operation.update);
    const float* const gradient = context.data<const float>(operation.gradient);
    for_pieces(context.threads, operation.momentum.count(), kPieceElements,
               [&, operation](std::int64_t begin, std::int64_t size) {
                   float* const __restrict m = momentum + begin;
                   float* const __restrict u = update + begin;
                   const float* const __restrict in = gradient + begin;
                   const float beta = operation.beta;
                   for (std::int64_t i = 0; i < size; ++i) {
                       const float g = operation.gradient_factor * scaled(in[i], operation.scale);
                       m[i] = std::fma(beta, m[i], g);
                       u[i] = operation.nesterov ? std::fma(beta, m[i], g) : m[i];
                   }
               });
}

void run(const Context& context, const FrobeniusNorm& operation) {
    with_float_type(operation.in.dtype, [&](auto type) {
        const auto* const in = context.data<const ElementOf<decltype(type)>>(operation.in);
        *context.data<double>(operation.norm) = frobenius_norm(context, operation.in, in);
    });
}

void run(const Context& context, const DivideByNorm& operation) {
    with_float_type(operation.out.dtype,
                    [&](auto type) { divide_by_norm<ElementOf<decltype(type)>>(context, operation); });
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
