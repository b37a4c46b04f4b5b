#pragma once

// Sums over rows, for the gradients of biases and of the weights of norms. A block adds a constant number of rows into
// a row of partial sums, then the partial sums are added in order: how rows are cut depends on the shape alone.

#include "device/cuda/kernels.h"
#include "device/cuda/vectors.h"

#include <algorithm>

namespace mfsdp::device::cuda {

/// How rows are cut into blocks.
struct RowBlocks {
    std::int64_t count = 0;
    std::int64_t rows_in_block = 0;
};

/// About `wanted` blocks of a multiple of `unit` rows.
[[nodiscard]] inline RowBlocks cut_rows(std::int64_t rows, std::int64_t wanted, std::int64_t unit) {
    const std::int64_t least = pieces_of(rows, std::max<std::int64_t>(1, wanted));
    const std::int64_t rows_in_block = pieces_of(std::max<std::int64_t>(1, least), unit) * unit;
    return {pieces_of(rows, rows_in_block), rows_in_block};
}

inline constexpr int kMostPartialRows = 16;

/// out[c] = sum over rows r of partial[r, c], rounded once. Threads with one threadIdx.y add every blockDim.y-th row.
template <class To>
__global__ void __launch_bounds__(kWarpSize* kMostPartialRows)
    sum_partials_kernel(To* out, const float* partial, std::int64_t rows, std::int64_t columns) {
    MFSDP_SHARED(float, sums[kMostPartialRows][kWarpSize]);
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarpSize + threadIdx.x;
    float sum = 0.0F;
    if (column < columns) {
        MFSDP_UNROLL_BY_4
        for (std::int64_t row = threadIdx.y; row < rows; row += blockDim.y) sum += partial[row * columns + column];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= columns) return;
    for (unsigned y = 1; y < blockDim.y; ++y) sum += sums[y][threadIdx.x];
    out[column] = rounded<To>(sum);
}

template <class To>
void sum_partials(const Context& context, To* out, const float* partial, std::int64_t rows, std::int64_t columns) {
    const auto down = static_cast<unsigned>(std::clamp<std::int64_t>(rows, 1, kMostPartialRows));
    launch_kernel(sum_partials_kernel<To>,
                  Grid{static_cast<unsigned>(pieces_of(columns, kWarpSize)), dim3(kWarpSize, down)}, context.stream,
                  out, partial, rows, columns);
}

}  // namespace mfsdp::device::cuda
