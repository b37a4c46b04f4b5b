#include "mfsdp/device/ops/row_moment.h"

#include "device/cuda/kernels.h"
#include "device/cuda/square_sums.h"
#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

namespace {

__global__ void __launch_bounds__(kThreads)
    row_moment_kernel(float* moment, SquareSums squares, std::int64_t columns, float beta, float one_minus_beta) {
    const std::int64_t row = global_index();
    if (row >= squares.rows) return;
    const auto mean = static_cast<float>(squares.row(row) / static_cast<double>(columns));
    moment[row] = fmaf(one_minus_beta, mean, beta * moment[row]);
}

__global__ void __launch_bounds__(kThreads)
    divide_rows_kernel(View<float> out, View<const float> in, const float* moment, float epsilon,
                       RowExtent<float, float> extent) {
    for_vectors(
        extent, [=](auto at) { return load(in, at); },
        [=](auto at, auto x) {
            const float divisor = sqrtf(moment[at.row]) + epsilon;
            for (float& value : x.lane) value /= divisor;
            store(out, at, x);
        });
}

__global__ void __launch_bounds__(kThreads)
    scale_by_ratio_kernel(View<float> out, View<const float> in, const double* numerator, const double* denominator,
                          RowExtent<float, float> extent) {
    const bool zero = *denominator == 0.0;
    const float factor = zero ? 0.0F : static_cast<float>(*numerator / *denominator);
    for_vectors(
        extent, [=](auto at) { return load(in, at); },
        [=](auto at, auto x) {
            for (float& value : x.lane) value = zero ? 0.0F : value * factor;
            store(out, at, x);
        });
}

template <int N>
struct Pair {
    Floats<N> weight, direction;
};

__global__ void __launch_bounds__(kThreads)
    cautious_update_kernel(View<float> weight, View<const float> direction, float decay, float step,
                           RowExtent<float, float, float> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            return Pair<decltype(at)::kLanes>{load(weight, at), load(direction, at)};
        },
        [=](auto at, auto v) {
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) {
                const float w = v.weight.lane[i], d = v.direction.lane[i];
                const bool opposed = (w > 0.0F && d < 0.0F) || (w < 0.0F && d > 0.0F);
                v.weight.lane[i] = fmaf(-step, d, opposed ? w : decay * w);
            }
            store(weight, at, v.weight);
        });
}

}  // namespace

void run(const Context& context, const RowMoment& operation) {
    const SquareSums squares = sum_squares<float>(context, operation.in);
    const Grid grid{static_cast<unsigned>(pieces_of(squares.rows, kThreads)), kThreads};
    launch_kernel(row_moment_kernel, grid, context.stream, data<float>(operation.moment), squares,
                  operation.in.columns(), operation.beta, operation.one_minus_beta);
}

void run(const Context& context, const DivideRows& operation) {
    const auto extent = extent_of_rows<RowExtent<float, float>>(operation.in.rows(), operation.in.columns(),
                                                                {operation.out, operation.in});
    launch_kernel(divide_rows_kernel, extent.grid(), context.stream, view_of<float>(operation.out),
                  view_of<const float>(operation.in), data<const float>(operation.moment), operation.epsilon, extent);
}

void run(const Context& context, const ScaleByRatio& operation) {
    const auto extent = extent_of_views<RowExtent<float, float>>({operation.out, operation.in});
    launch_kernel(scale_by_ratio_kernel, extent.grid(), context.stream, view_of<float>(operation.out),
                  view_of<const float>(operation.in), data<const double>(operation.numerator),
                  data<const double>(operation.denominator), extent);
}

void run(const Context& context, const CautiousUpdate& operation) {
    const auto extent = extent_of_views<RowExtent<float, float, float>>({operation.weight, operation.direction});
    launch_kernel(cautious_update_kernel, extent.grid(), context.stream, view_of<float>(operation.weight),
                  view_of<const float>(operation.direction), operation.decay, operation.step, extent);
}

}  // namespace mfsdp::device::cuda
