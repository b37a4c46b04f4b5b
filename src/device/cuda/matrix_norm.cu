#include "mfsdp/device/ops/optimizer.h"

#include "device/cuda/kernels.h"
#include "device/cuda/reduce.h"
#include "device/cuda/square_sums.h"
#include "device/cuda/transpose_tile.h"
#include "device/cuda/vectors.h"

#include <cmath>

namespace mfsdp::device::cuda {

namespace {

__global__ void __launch_bounds__(kColumnSumThreads)
    square_sums_by_columns_kernel(double* sums, const float* in, std::int64_t stride, std::int64_t rows,
                                  std::int64_t columns, bool aligned) {
    sum_squares_of_columns(
        sums, rows, columns, aligned,
        [=](auto at) { return load<decltype(at)::kLanes>(in + at.row * stride + at.column); },
        [](auto /*at*/, const auto& values) { return values; });
}

constexpr int kNormThreads = 1024;

__global__ void __launch_bounds__(kNormThreads) frobenius_norm_kernel(double* norm, SquareSums squares) {
    double sum[1] = {0.0};
    for (std::int64_t row = threadIdx.x; row < squares.rows; row += blockDim.x) sum[0] += squares.row(row);
    sum_over_row(sum);
    if (threadIdx.x == 0) *norm = sqrt(sum[0]);
}

void take_norm(const Context& context, const Tensor& norm, const SquareSums& squares) {
    launch_kernel(frobenius_norm_kernel, Grid{1, static_cast<unsigned>(threads_for(squares.rows, kNormThreads))},
                  context.stream, data<double>(norm), squares);
}

/// How elements are divided by a norm: see DivideByNorm.
struct Divisor {
    double norm;
    float single;
    bool in_float;

    __device__ explicit Divisor(double value)
        : norm(value), single(static_cast<float>(value)), in_float(fits(single) || !(fabs(value) < INFINITY)) {}

    [[nodiscard]] __device__ float divide(float x) const {
        if (norm == 0.0) return 0.0F;
        return in_float ? x / single : static_cast<float>(static_cast<double>(x) / norm);
    }

  private:
    /// Whether float32 holds the norm as a normal number.
    [[nodiscard]] __device__ static bool fits(float single) {
        constexpr float kSmallest = 0x1p-126F;
        return single >= kSmallest && single < INFINITY;
    }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    divide_by_norm_kernel(View<T> out, View<const float> in, const double* norm, RowExtent<T, float> extent) {
    const Divisor divisor(*norm);
    for_vectors(
        extent, [=](auto at) { return load(in, at); },
        [=](auto at, auto x) {
            for (float& value : x.lane) value = divisor.divide(value);
            store(out, at, x);
        });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    divide_transposed_kernel(TransposeArguments<T, float> a, const double* norm) {
    MFSDP_SHARED(float, tile[kTile * kTileStride<float>]);
    const Divisor divisor(*norm);
    transpose_tile(a, tile, [&](float x) { return rounded<T>(divisor.divide(x)); });
}

template <class T>
void divide(const Context& context, const DivideByNorm& operation) {
    const auto* const norm = data<const double>(operation.norm);
    if (operation.transposed) {
        const auto arguments = transpose_arguments<T, float>(operation.out, operation.in);
        launch_kernel(divide_transposed_kernel<T>, arguments.grid(), context.stream, arguments, norm);
        return;
    }
    const auto extent = extent_of_views<RowExtent<T, float>>({operation.out, operation.in});
    launch_kernel(divide_by_norm_kernel<T>, extent.grid(), context.stream, view_of<T>(operation.out),
                  view_of<const float>(operation.in), norm, extent);
}

}  // namespace

void run(const Context& context, const BlockSquareSums& operation) {
    const Tensor& in = operation.in;
    auto* const sums = data<double>(operation.square_sums);
    if (in.count() == 0) return;
    if (!operation.by_columns) return sum_squares<float>(context, sums, in);
    const bool aligned = is_aligned(in, kLanesOf<float>, true) && in.columns() % kLanesOf<float> == 0;
    launch_kernel(square_sums_by_columns_kernel, grid_of_column_sums(in.rows(), in.columns()), context.stream, sums,
                  data<const float>(in), in.rank == 2 ? in.strides[0] : 0, in.rows(), in.columns(), aligned);
}

void run(const Context& context, const FrobeniusNorm& operation) {
    with_float_type(operation.in.dtype, [&](auto type) {
        take_norm(context, operation.norm, sum_squares<ElementOf<decltype(type)>>(context, operation.in));
    });
}

void run(const Context& context, const NormOfSquareSums& operation) {
    const Tensor& sums = operation.square_sums;
    take_norm(context, operation.norm, {data<const double>(sums), sums.rows(), sums.columns()});
}

void run(const Context& context, const DivideByNorm& operation) {
    with_float_type(operation.out.dtype, [&](auto type) { divide<ElementOf<decltype(type)>>(context, operation); });
}

}  // namespace mfsdp::device::cuda
