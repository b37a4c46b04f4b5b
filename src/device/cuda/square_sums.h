#pragma once

// Sums of squares of the rows of a matrix, with the bits of the CPU's: squares and sums in double, element i of a block
// of kSumBlock elements in lane i mod kSumLanes, the lanes of a block added as a tree, blocks in order.

#include "device/cuda/kernels.h"
#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

inline constexpr std::int64_t kSumBlock = 4096;
inline constexpr int kSumLanes = 16;

/// sums[b]: sum of squares of block b, counted through all rows. kSumLanes threads to a block, 16 blocks side by side.
template <class T>
__global__ void __launch_bounds__(kThreads) square_sums_kernel(double* sums, View<const T> in, std::int64_t columns,
                                                               std::int64_t blocks_in_row, std::int64_t blocks) {
    constexpr int kInFlight = 8;
    const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kSumLanes) + threadIdx.x / kSumLanes;
    const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
    double sum = 0.0;
    if (block < blocks) {
        const std::int64_t row = quotient(block, blocks_in_row);
        const std::int64_t begin = (block - row * blocks_in_row) * kSumBlock;
        const std::int64_t size = columns - begin < kSumBlock ? columns - begin : kSumBlock;
        const T* const values = in.row(row) + begin;
        for (std::int64_t first = lane; first < size; first += kSumLanes * kInFlight) {
            float loaded[kInFlight];
            MFSDP_UNROLL
            for (int i = 0; i < kInFlight; ++i) {
                const std::int64_t index = first + i * kSumLanes;
                loaded[i] = index < size ? widened(values[index]) : 0.0F;
            }
            MFSDP_UNROLL
            for (int i = 0; i < kInFlight; ++i) {
                const auto x = static_cast<double>(loaded[i]);
                sum = fma(x, x, sum);  // the square is exact either way
            }
        }
    }
    MFSDP_UNROLL
    for (int offset = kSumLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, offset);
    if (lane == 0 && block < blocks) sums[block] = sum;
}

/// Sums of squares of blocks, in scratch.
struct SquareSums {
    const double* sums = nullptr;  ///< [rows, blocks_in_row]
    std::int64_t rows = 0, blocks_in_row = 0;

    [[nodiscard]] __device__ double row(std::int64_t row) const {
        double sum = 0.0;
        for (std::int64_t i = 0; i < blocks_in_row; ++i) sum += sums[row * blocks_in_row + i];
        return sum;
    }
};

template <class T>
[[nodiscard]] SquareSums sum_squares(const Context& context, const Tensor& matrix) {
    SquareSums result;
    result.rows = matrix.rows();
    result.blocks_in_row = pieces_of(matrix.columns(), kSumBlock);
    const std::int64_t blocks = result.rows * result.blocks_in_row;
    if (blocks == 0) return result;
    auto* const sums =
        reinterpret_cast<double*>(context.scratch.reserve(blocks * static_cast<std::int64_t>(sizeof(double))));
    result.sums = sums;
    launch_kernel(square_sums_kernel<T>, Grid{static_cast<unsigned>(pieces_of(blocks, kThreads / kSumLanes)), kThreads},
                  context.stream, sums, view_of<const T>(matrix), matrix.columns(), result.blocks_in_row, blocks);
    return result;
}

}  // namespace mfsdp::device::cuda
