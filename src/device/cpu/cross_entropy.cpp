#include "device/cpu/element.h"
#include "device/cpu/float8.h"
#include "device/cpu/kernels.h"
#include "device/cpu/vector_math.h"

#include <algorithm>
#include <limits>

namespace mfsdp::device::cpu {

namespace {

constexpr std::int64_t kRowsPerPiece = 4;
/// Columns whose exponentials are added before they are added to the row's sum.
constexpr std::int64_t kColumnsPerBlock = 512;
/// Tokens whose losses are added before they are added to the total.
constexpr std::int64_t kTokensPerBlock = 1024;

template <class Body>
void for_rows(const Context& context, std::int64_t rows, const Body& body) {
    context.threads.parallel_for((rows + kRowsPerPiece - 1) / kRowsPerPiece, [&](std::int64_t piece) {
        const std::int64_t end = std::min(rows, (piece + 1) * kRowsPerPiece);
        for (std::int64_t row = piece * kRowsPerPiece; row < end; ++row) body(row);
    });
}

/// Largest of a row; NaN is passed over and shows in the sum instead.
float row_maximum(const float* row, std::int64_t columns) {
    constexpr float kNothing = -std::numeric_limits<float>::infinity();
    Float8 first = broadcast(kNothing), second = first, third = first, fourth = first;
    std::int64_t i = 0;
    for (; i + 4 * kLanes <= columns; i += 4 * kLanes) {
        first = max(load(row + i), first);
        second = max(load(row + i + kLanes), second);
        third = max(load(row + i + 2 * kLanes), third);
        fourth = max(load(row + i + 3 * kLanes), fourth);
    }
    for (; i + kLanes <= columns; i += kLanes) first = max(load(row + i), first);
    if (i < columns) second = max(load_first(row + i, columns - i, kNothing), second);
    return max_lanes(max(max(first, second), max(third, fourth)));
}

/// Sum of e^(x - maximum) over a row.
float row_sum(const float* row, std::int64_t columns, float maximum) {
    float total = 0.0F;
    for (std::int64_t begin = 0; begin < columns; begin += kColumnsPerBlock) {
        const float* const block = row + begin;
        total += sum_vectors(std::min(columns - begin, kColumnsPerBlock), [=](std::int64_t i, std::int64_t lanes) {
            const Float8 power = exponential(load_lanes(block + i, lanes) - broadcast(maximum));
            return lanes == kLanes ? power : keep_first(power, lanes);
        });
    }
    return total;
}

double log_z(float maximum, float sum) { return static_cast<double>(maximum) + logarithm(sum); }

template <class T>
void cross_entropy_backward(const Context& context, const CrossEntropyBackward& operation) {
    const std::int64_t columns = operation.logits.shape[1];
    const std::int64_t stride = operation.logits.strides[0], grad_stride = operation.grad.strides[0];
    T* const grad = context.data<T>(operation.grad);
    const float* const logits = context.data<const float>(operation.logits);
    const float* const maximum = context.data<const float>(operation.maximum);
    const float* const sum = context.data<const float>(operation.sum);
    const std::int32_t* const targets = context.data<const std::int32_t>(operation.targets);
    for_rows(context, operation.logits.shape[0], [&](std::int64_t row) {
        const float* const values = logits + row * stride;
        T* const result = grad + row * grad_stride;
        if (targets[row] == kIgnoredTarget) {
            std::fill(result, result + columns, rounded<T>(0.0F));
            return;
        }
        float reciprocal = 1.0F / sum[row];
        if (operation.z_loss != 0.0F) {
            const double slope = 2.0 * static_cast<double>(operation.z_loss) * log_z(maximum[row], sum[row]);
            reciprocal = static_cast<float>((1.0 + slope) / static_cast<double>(sum[row]));
        }
        const auto scaled_probability = [&](Float8 logit) {
            return exponential(logit - broadcast(maximum[row])) * broadcast(reciprocal);
        };
        // The target's element is computed apart: it is rounded once, after the subtraction.
        const std::int64_t target = targets[row] - operation.panel_begin;
        const bool holds_target = target >= 0 && target < columns;
        const float at_target = holds_target ? scaled_probability(broadcast(values[target]))[0] - 1.0F : 0.0F;
        for_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
            store_lanes(result + i, scaled_probability(load_lanes(values + i, lanes)), lanes);
        });
        if (holds_target) result[target] = rounded<T>(at_target);
    });
}

}  // namespace

void run(const Context& context, const LogSumExpUpdate& operation) {
    const std::int64_t columns = operation.logits.shape[1];
    const std::int64_t stride = operation.logits.strides[0];
    const float* const logits = context.data<const float>(operation.logits);
    float* const maximum = context.data<float>(operation.maximum);
    float* const sum = context.data<float>(operation.sum);
    float* const target_logit = context.data<float>(operation.target_logit);
    const std::int32_t* const targets = context.data<const std::int32_t>(operation.targets);
    for_rows(context, operation.logits.shape[0], [&](std::int64_t row) {
        const float* const values = logits + row * stride;
        const std::int64_t target = targets[row] - operation.panel_begin;
        if (targets[row] == kIgnoredTarget) {
            if (operation.first) target_logit[row] = 0.0F;
        } else if (target >= 0 && target < columns) {
            target_logit[row] = values[target];
        }
        const float largest = row_maximum(values, columns);
        if (operation.first) {
            maximum[row] = largest;
            sum[row] = row_sum(values, columns, largest);
            return;
        }
        const float together = largest > maximum[row] ? largest : maximum[row];
        const float rescale = exponential(broadcast(maximum[row] - together))[0];
        sum[row] = std::fma(sum[row], rescale, row_sum(values, columns, together));
        maximum[row] = together;
    });
}

void run(const Context& context, const LossSum& operation) {
    const std::int64_t tokens = operation.maximum.shape[0];
    const float* const maximum = context.data<const float>(operation.maximum);
    const float* const sum = context.data<const float>(operation.sum);
    const float* const target_logit = context.data<const float>(operation.target_logit);
    const std::int32_t* const targets = context.data<const std::int32_t>(operation.targets);
    double losses = 0.0, squares = 0.0;
    std::int64_t count = 0;
    for (std::int64_t begin = 0; begin < tokens; begin += kTokensPerBlock) {
        const std::int64_t end = std::min(tokens, begin + kTokensPerBlock);
        double block_losses = 0.0, block_squares = 0.0;
        for (std::int64_t i = begin; i < end; ++i) {
            if (targets[i] == kIgnoredTarget) continue;
            const double log_sum_exp = log_z(maximum[i], sum[i]);
            block_losses += static_cast<double>(static_cast<float>(log_sum_exp - static_cast<double>(target_logit[i])));
            block_squares += log_sum_exp * log_sum_exp;
            ++count;
        }
        losses += block_losses;
        squares += block_squares;
    }
    *context.data<double>(operation.loss_sum) = losses;
    *context.data<double>(operation.log_z_squares) = squares;
    *context.data<std::int64_t>(operation.target_count) = count;
}

void run(const Context& context, const CrossEntropyBackward& operation) {
    with_value_type(operation.grad.dtype,
                    [&](auto type) { cross_entropy_backward<ElementOf<decltype(type)>>(context, operation); });
}

}  // namespace mfsdp::device::cpu
