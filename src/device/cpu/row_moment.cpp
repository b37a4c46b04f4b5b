#include "mfsdp/device/ops/row_moment.h"

#include "device/cpu/kernels.h"
#include "device/cpu/pieces.h"
#include "device/cpu/square_sum.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::device::cpu {

namespace {

// Elements of the rows that one thread takes at a time.
constexpr std::int64_t kRowElements = 65536;

bool opposed(float weight, float direction) {
    return (weight > 0.0F && direction < 0.0F) || (weight < 0.0F && direction > 0.0F);
}

}  // namespace

void run(const Context& context, const RowMoment& operation) {
    float* const moment = context.data<float>(operation.moment);
    const float* const in = context.data<const float>(operation.in);
    const std::int64_t columns = operation.in.columns(), stride = operation.in.strides[0];
    const float beta = operation.beta, one_minus_beta = operation.one_minus_beta;
    for_pieces(context.threads, operation.in.rows(), std::max<std::int64_t>(1, kRowElements / columns),
               [=](std::int64_t first, std::int64_t count) {
                   for (std::int64_t row = first; row < first + count; ++row) {
                       const auto mean = static_cast<float>(square_sum_of_row(in + row * stride, columns) /
                                                            static_cast<double>(columns));
                       moment[row] = std::fma(one_minus_beta, mean, beta * moment[row]);
                   }
               });
}

void run(const Context& context, const DivideRows& operation) {
    float* const out = context.data<float>(operation.out);
    const float* const in = context.data<const float>(operation.in);
    const float* const moment = context.data<const float>(operation.moment);
    const std::int64_t out_stride = operation.out.strides[0], in_stride = operation.in.strides[0];
    const float epsilon = operation.epsilon;
    for_row_pieces(context.threads, operation.in.rows(), operation.in.columns(),
                   [=](std::int64_t row, std::int64_t begin, std::int64_t size) {
                       const float divisor = std::sqrt(moment[row]) + epsilon;
                       const float* const source = in + row * in_stride + begin;
                       float* const target = out + row * out_stride + begin;
                       for (std::int64_t i = 0; i < size; ++i) target[i] = source[i] / divisor;
                   });
}

void run(const Context& context, const ScaleByRatio& operation) {
    float* const out = context.data<float>(operation.out);
    const float* const in = context.data<const float>(operation.in);
    const std::int64_t out_stride = operation.out.strides[0], in_stride = operation.in.strides[0];
    const double numerator = *context.data<const double>(operation.numerator);
    const double denominator = *context.data<const double>(operation.denominator);
    const float factor = denominator == 0.0 ? 0.0F : static_cast<float>(numerator / denominator);
    const bool zero = denominator == 0.0;
    for_row_pieces(context.threads, operation.in.rows(), operation.in.columns(),
                   [=](std::int64_t row, std::int64_t begin, std::int64_t size) {
                       const float* const source = in + row * in_stride + begin;
                       float* const target = out + row * out_stride + begin;
                       for (std::int64_t i = 0; i < size; ++i) target[i] = zero ? 0.0F : source[i] * factor;
                   });
}

void run(const Context& context, const CautiousUpdate& operation) {
    float* const weight = context.data<float>(operation.weight);
    const float* const direction = context.data<const float>(operation.direction);
    const std::int64_t weight_stride = operation.weight.strides[0], stride = operation.direction.strides[0];
    const float decay = operation.decay, step = operation.step;
    for_row_pieces(context.threads, operation.weight.rows(), operation.weight.columns(),
                   [=](std::int64_t row, std::int64_t begin, std::int64_t size) {
                       float* const __restrict w = weight + row * weight_stride + begin;
                       const float* const __restrict d = direction + row * stride + begin;
                       for (std::int64_t i = 0; i < size; ++i) {
                           w[i] = std::fma(-step, d[i], opposed(w[i], d[i]) ? w[i] : decay * w[i]);
                       }
                   });
}

}  // namespace mfsdp::device::cpu
