#include "device/cpu/column_blocks.h"
#include "device/cpu/float8.h"
#include "device/cpu/kernels.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::device::cpu {

namespace {

constexpr std::int64_t kRowsPerPiece = 8;

template <class Body>
void for_rows(const Context& context, std::int64_t rows, const Body& body) {
    context.threads.parallel_for((rows + kRowsPerPiece - 1) / kRowsPerPiece, [&](std::int64_t piece) {
        const std::int64_t end = std::min(rows, (piece + 1) * kRowsPerPiece);
        for (std::int64_t row = piece * kRowsPerPiece; row < end; ++row) body(row);
    });
}

/// One row through LayerNorm; gives the mean and the reciprocal of the standard deviation.
struct LayerNormRow {
    float mean, reciprocal_std;
};

LayerNormRow layer_norm_row(float* out, const float* in, const float* weight, const float* bias, std::int64_t columns,
                            float epsilon) {
    const float count = static_cast<float>(columns);
    const float mean =
        sum_vectors(columns, [=](std::int64_t i, std::int64_t lanes) { return load_lanes(in + i, lanes); }) / count;
    const Float8 means = broadcast(mean);
    // Second pass over the row: a difference of sums of squares would cancel.
    const float squares = sum_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
        const Float8 difference = load_lanes(in + i, lanes, mean) - means;
        return difference * difference;
    });
    const float reciprocal_std = 1.0F / std::sqrt(squares / count + epsilon);
    for_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
        const Float8 normal = (load_lanes(in + i, lanes) - means) * broadcast(reciprocal_std);
        store_lanes(out + i, fma(normal, load_lanes(weight + i, lanes), load_lanes(bias + i, lanes)), lanes);
    });
    return {mean, reciprocal_std};
}

/// grad_in (+)= reciprocal * (g - mean(g) - x * mean(g x)) with g = grad_out * weight and x the normalised input, which
/// is (in - shift) * reciprocal. kCentred = false leaves mean(g) and the shift out: that is RmsNorm.
template <bool kCentred>
void norm_backward_row(float* grad_in, const float* grad_out, const float* in, const float* weight,
                       std::int64_t columns, float shift, float reciprocal, bool accumulate) {
    const float count = static_cast<float>(columns);
    const auto normal = [=](std::int64_t i, std::int64_t lanes) {
        const Float8 x = load_lanes(in + i, lanes, shift);
        return (kCentred ? x - broadcast(shift) : x) * broadcast(reciprocal);
    };
    const auto weighted = [=](std::int64_t i, std::int64_t lanes) {
        return load_lanes(grad_out + i, lanes) * load_lanes(weight + i, lanes);
    };
    const float mean_product =
        sum_vectors(columns,
                    [&](std::int64_t i, std::int64_t lanes) { return weighted(i, lanes) * normal(i, lanes); }) /
        count;
    const float mean_gradient = kCentred ? sum_vectors(columns, weighted) / count : 0.0F;
    for_vectors(columns, [&](std::int64_t i, std::int64_t lanes) {
        Float8 g = weighted(i, lanes);
        if constexpr (kCentred) g -= broadcast(mean_gradient);
        const Float8 bracket = fma(normal(i, lanes), broadcast(-mean_product), g);
        const Float8 gradient = bracket * broadcast(reciprocal);
        store_lanes(grad_in + i, accumulate ? load_lanes(grad_in + i, lanes) + gradient : gradient, lanes);
    });
}

}  // namespace

void run(const Context& context, const LayerNormForward& operation) {
    const std::int64_t columns = operation.input.shape[1];
    float* const out = context.data<float>(operation.out);
    float* const mean = context.data<float>(operation.mean);
    float* const reciprocal_std = context.data<float>(operation.reciprocal_std);
    const float* const in = context.data<float>(operation.input);
    const float* const weight = context.data<float>(operation.weight);
    const float* const bias = context.data<float>(operation.bias);
    for_rows(context, operation.input.shape[0], [&](std::int64_t row) {
        const std::int64_t offset = row * columns;
        const LayerNormRow statistics =
            layer_norm_row(out + offset, in + offset, weight, bias, columns, operation.epsilon);
        mean[row] = statistics.mean;
        reciprocal_std[row] = statistics.reciprocal_std;
    });
}

void run(const Context& context, const LayerNormBackward& operation) {
    const std::int64_t rows = operation.input.shape[0];
    const std::int64_t columns = operation.input.shape[1];
    float* const grad_in = context.data<float>(operation.grad_input);
    const float* const grad_out = context.data<float>(operation.grad_out);
    const float* const in = context.data<float>(operation.input);
    const float* const mean = context.data<float>(operation.mean);
    const float* const reciprocal_std = context.data<float>(operation.reciprocal_std);
    const float* const weight = context.data<float>(operation.weight);
    // The column sums come first: grad_input may take the place of the input.
    float* const totals[2] = {context.data<float>(operation.grad_weight), context.data<float>(operation.grad_bias)};
    sum_columns<2>(context.threads, rows, columns, totals,
                   [=](std::int64_t row, std::int64_t column, std::int64_t lanes, Float8* sums) {
                       const std::int64_t offset = row * columns + column;
                       const Float8 g = load_lanes(grad_out + offset, lanes);
                       const Float8 normal =
                           (load_lanes(in + offset, lanes) - broadcast(mean[row])) * broadcast(reciprocal_std[row]);
                       sums[0] = fma(g, normal, sums[0]);
                       sums[1] += g;
                   });
    for_rows(context, rows, [&](std::int64_t row) {
        const std::int64_t offset = row * columns;
        norm_backward_row<true>(grad_in + offset, grad_out + offset, in + offset, weight, columns, mean[row],
                                reciprocal_std[row], operation.accumulate_input);
    });
}

void run(const Context& context, const RmsNormForward& operation) {
    const std::int64_t columns = operation.input.shape[1];
    const std::int64_t in_stride = operation.input.strides[0];
    const std::int64_t out_stride = operation.out.strides[0];
    float* const out = context.data<float>(operation.out);
    float* const reciprocal_rms = context.data<float>(operation.reciprocal_rms);
    const float* const in = context.data<float>(operation.input);
    const float* const weight = context.data<float>(operation.weight);
    for_rows(context, operation.input.shape[0], [&](std::int64_t row) {
        const float* const source = in + row * in_stride;
        float* const target = out + row * out_stride;
        const float squares = sum_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
            const Float8 x = load_lanes(source + i, lanes);
            return x * x;
        });
        const float reciprocal = 1.0F / std::sqrt(squares / static_cast<float>(columns) + operation.epsilon);
        for_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
            const Float8 normal = load_lanes(source + i, lanes) * broadcast(reciprocal);
            store_lanes(target + i, normal * load_lanes(weight + i, lanes), lanes);
        });
        reciprocal_rms[row] = reciprocal;
    });
}

void run(const Context& context, const RmsNormBackward& operation) {
    const std::int64_t rows = operation.input.shape[0];
    const std::int64_t columns = operation.input.shape[1];
    const std::int64_t grad_in_stride = operation.grad_input.strides[0];
    const std::int64_t grad_out_stride = operation.grad_out.strides[0];
    const std::int64_t in_stride = operation.input.strides[0];
    float* const grad_in = context.data<float>(operation.grad_input);
    const float* const grad_out = context.data<float>(operation.grad_out);
    const float* const in = context.data<float>(operation.input);
    const float* const reciprocal_rms = context.data<float>(operation.reciprocal_rms);
    const float* const weight = context.data<float>(operation.weight);
    // The column sums come first: grad_input may take the place of the input.
    float* const totals[1] = {context.data<float>(operation.grad_weight)};
    sum_columns<1>(context.threads, rows, columns, totals,
                   [=](std::int64_t row, std::int64_t column, std::int64_t lanes, Float8* sums) {
                       const Float8 g = load_lanes(grad_out + row * grad_out_stride + column, lanes);
                       const Float8 normal =
                           load_lanes(in + row * in_stride + column, lanes) * broadcast(reciprocal_rms[row]);
                       sums[0] = fma(g, normal, sums[0]);
                   });
    for_rows(context, rows, [&](std::int64_t row) {
        norm_backward_row<false>(grad_in + row * grad_in_stride, grad_out + row * grad_out_stride, in + row * in_stride,
                                 weight, columns, 0.0F, reciprocal_rms[row], operation.accumulate_input);
    });
}

}  // namespace mfsdp::device::cpu
