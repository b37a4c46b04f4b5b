#pragma once

// Sums of squares of the rows or columns of a matrix, with the bits of the CPU's: squares and sums in double, element i
// of a block of kSquareSumBlock elements in lane i mod kSumLanes, the lanes of a block added as a tree, blocks in
// order.

#include "mfsdp/device/ops/optimizer.h"

#include "device/cuda/kernels.h"
#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

inline constexpr int kSumLanes = 16;

/// The sum over the kSumLanes threads of a block's lanes, as a tree; the whole warp takes part.
[[nodiscard]] __device__ inline double sum_over_lanes(double sum) {
    MFSDP_UNROLL
    for (int offset = kSumLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, offset);
    return sum;
}

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
        const std::int64_t begin = (block - row * blocks_in_row) * kSquareSumBlock;
        const std::int64_t size = columns - begin < kSquareSumBlock ? columns - begin : kSquareSumBlock;
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
    sum = sum_over_lanes(sum);
    if (lane == 0 && block < blocks) sums[block] = sum;
}

/// Threads of a block that sums squares of columns: kSumLanes for each of kColumnGroup / kLanesOf<float> vectors.
inline constexpr int kColumnGroup = 32;
inline constexpr int kColumnVectors = kColumnGroup / kLanesOf<float>;
inline constexpr int kColumnSumThreads = kColumnVectors * kSumLanes;

/// Blocks of kSquareSumBlock rows and kColumnGroup columns.
[[nodiscard]] inline Grid grid_of_column_sums(std::int64_t rows, std::int64_t columns) {
    return {static_cast<unsigned>(square_sums_of(rows) * pieces_of(columns, kColumnGroup)), kColumnSumThreads};
}

/// sums[c, b] of the columns of a matrix, b counting blocks of rows: what square_sums_kernel gives for the transpose.
/// Elements come as in for_vectors: take(at, load(at)) gives the floats of a place, each place once. Vectors are used
/// where `aligned` says that every row may be accessed so.
template <class Load, class Take>
__device__ inline void sum_squares_of_columns(double* sums, std::int64_t rows, std::int64_t columns, bool aligned,
                                              const Load& load, const Take& take) {
    constexpr int kLanes = kLanesOf<float>, kInFlight = 4;
    MFSDP_SHARED(double, lanes[kSumLanes][kColumnGroup]);
    const std::int64_t blocks = pieces_of(rows, kSquareSumBlock), groups = pieces_of(columns, kColumnGroup);
    const std::int64_t block = quotient(blockIdx.x, groups), group = blockIdx.x - block * groups;
    const int lane = static_cast<int>(threadIdx.x) / kColumnVectors;
    const int vector = static_cast<int>(threadIdx.x) % kColumnVectors;
    const std::int64_t column = group * kColumnGroup + vector * kLanes;
    const std::int64_t first = block * kSquareSumBlock;
    const std::int64_t last = rows < first + kSquareSumBlock ? rows : first + kSquareSumBlock;
    double sum[kLanes] = {};
    if (aligned) {
        for (std::int64_t row = first + lane; column < columns && row < last; row += kInFlight * kSumLanes) {
            decltype(load(Place<kLanes>{})) loaded[kInFlight]{};
            MFSDP_UNROLL
            for (int i = 0; i < kInFlight; ++i) {
                if (row + i * kSumLanes < last) loaded[i] = load(Place<kLanes>{row + i * kSumLanes, column});
            }
            MFSDP_UNROLL
            for (int i = 0; i < kInFlight; ++i) {
                if (row + i * kSumLanes >= last) continue;
                const Floats<kLanes> values = take(Place<kLanes>{row + i * kSumLanes, column}, loaded[i]);
                MFSDP_UNROLL
                for (int c = 0; c < kLanes; ++c) {
                    const auto x = static_cast<double>(values.lane[c]);
                    sum[c] = fma(x, x, sum[c]);
                }
            }
        }
    } else {
        for (std::int64_t row = first + lane; row < last; row += kSumLanes) {
            MFSDP_UNROLL
            for (int c = 0; c < kLanes; ++c) {
                if (column + c >= columns) continue;
                const Place<1> at{row, column + c};
                const auto x = static_cast<double>(take(at, load(at)).lane[0]);
                sum[c] = fma(x, x, sum[c]);
            }
        }
    }
    MFSDP_UNROLL
    for (int c = 0; c < kLanes; ++c) lanes[lane][vector * kLanes + c] = sum[c];
    __syncthreads();
    const int own = static_cast<int>(threadIdx.x);
    if (own >= kColumnGroup || group * kColumnGroup + own >= columns) return;
    MFSDP_UNROLL
    for (int width = kSumLanes / 2; width > 0; width /= 2) {
        MFSDP_UNROLL
        for (int i = 0; i < width; ++i) lanes[i][own] += lanes[i + width][own];
    }
    sums[(group * kColumnGroup + own) * blocks + block] = lanes[0][own];
}

/// Launches square_sums_kernel; sums [rows, square_sums_of(columns)].
template <class T>
void sum_squares(const Context& context, double* sums, const Tensor& matrix) {
    const std::int64_t blocks_in_row = square_sums_of(matrix.columns()), blocks = matrix.rows() * blocks_in_row;
    launch_kernel(square_sums_kernel<T>, Grid{static_cast<unsigned>(pieces_of(blocks, kThreads / kSumLanes)), kThreads},
                  context.stream, sums, view_of<const T>(matrix), matrix.columns(), blocks_in_row, blocks);
}

/// Sums of squares of blocks.
struct SquareSums {
    const double* sums = nullptr;  ///< [rows, blocks_in_row]
    std::int64_t rows = 0, blocks_in_row = 0;

    [[nodiscard]] __device__ double row(std::int64_t row) const {
        double sum = 0.0;
        for (std::int64_t i = 0; i < blocks_in_row; ++i) sum += sums[row * blocks_in_row + i];
        return sum;
    }
};

/// The same in scratch.
template <class T>
[[nodiscard]] SquareSums sum_squares(const Context& context, const Tensor& matrix) {
    SquareSums result{.rows = matrix.rows(), .blocks_in_row = square_sums_of(matrix.columns())};
    const std::int64_t blocks = result.rows * result.blocks_in_row;
    if (blocks == 0) return result;
    auto* const sums =
        reinterpret_cast<double*>(context.scratch.reserve(blocks * static_cast<std::int64_t>(sizeof(double))));
    result.sums = sums;
    sum_squares<T>(context, sums, matrix);
    return result;
}

}  // namespace mfsdp::device::cuda
