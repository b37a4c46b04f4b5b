#include "mfsdp/device/ops/optimizer.h"

#include "device/cuda/kernels.h"
#include "device/cuda/scaled_gradient.h"
#include "device/cuda/square_sums.h"
#include "device/cuda/vectors.h"

#include <algorithm>

namespace mfsdp::device::cuda {

namespace {

struct MomentumArguments {
    float *momentum, *update;
    const float* gradient;
    double* square_sums;
    GradientScale scale;
    float beta, gradient_factor;
    bool nesterov;
    bool aligned;  ///< to 16 bytes, all three
    std::int64_t rows, columns;
};

template <int N>
struct MomentumVectors {
    Floats<N> momentum, gradient;
};

/// N elements from element `i` of dense memory on.
template <int N>
[[nodiscard]] __device__ inline MomentumVectors<N> load_momentum(const MomentumArguments& a, std::int64_t i) {
    return {load<N>(a.momentum + i), load<N>(a.gradient + i)};
}

/// Stores momentum and update, and returns the update.
template <int N>
__device__ inline Floats<N> step_momentum(const MomentumArguments& a, std::int64_t i, MomentumVectors<N> v) {
    MFSDP_UNROLL
    for (int lane = 0; lane < N; ++lane) {
        const float g = a.gradient_factor * scaled(v.gradient.lane[lane], a.scale);
        const float m = fmaf(a.beta, v.momentum.lane[lane], g);
        v.momentum.lane[lane] = m;
        v.gradient.lane[lane] = a.nesterov ? fmaf(a.beta, m, g) : m;
    }
    store(a.momentum + i, v.momentum);
    store(a.update + i, v.gradient);
    return v.gradient;
}

/// Blocks of kSquareSumBlock elements or fewer, counted through all rows: where they begin in dense memory.
struct RowBlocks {
    std::int64_t columns, in_row;

    [[nodiscard]] __device__ std::int64_t begin(std::int64_t block) const {
        const std::int64_t row = quotient(block, in_row);
        return row * columns + (block - row * in_row) * kSquareSumBlock;
    }
};

/// Elements of a tile: vectors for each thread to have several on their way.
constexpr int kTileElements = 4096;

/// A tile is several blocks, which follow each other in memory. It is kept in shared memory while it is written, so
/// that the sums, whose order leaves few threads, cost no second pass over memory.
__global__ void __launch_bounds__(kThreads)
    momentum_kernel(MomentumArguments a, RowBlocks row_blocks, std::int64_t blocks, int blocks_in_tile) {
    constexpr int kLanes = kLanesOf<float>, kInFlight = kTileElements / (kThreads * kLanes);
    MFSDP_SHARED(float, values[kTileElements]);
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blocks_in_tile;
    const int count = static_cast<int>(blocks - first < blocks_in_tile ? blocks - first : blocks_in_tile);
    const std::int64_t begin = row_blocks.begin(first);
    const std::int64_t end = first + count < blocks ? row_blocks.begin(first + count) : a.rows * a.columns;
    const int size = static_cast<int>(end - begin);
    const int thread = static_cast<int>(threadIdx.x);
    const int vectors = a.aligned && begin % kLanes == 0 ? size / kLanes : 0;

    MomentumVectors<kLanes> loaded[kInFlight]{};
    MFSDP_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
        const int vector = i * kThreads + thread;
        if (vector < vectors) loaded[i] = load_momentum<kLanes>(a, begin + vector * kLanes);
    }
    MFSDP_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
        const int vector = i * kThreads + thread;
        if (vector >= vectors) continue;
        const Floats<kLanes> update = step_momentum(a, begin + vector * kLanes, loaded[i]);
        store(values + vector * kLanes, update);
    }
    MFSDP_KEEP_LOOP
    for (int i = vectors * kLanes + thread; i < size; i += kThreads) {
        values[i] = step_momentum(a, begin + i, load_momentum<1>(a, begin + i)).lane[0];
    }
    if (a.square_sums == nullptr) return;
    __syncthreads();
    constexpr int kBlocksAtOnce = kThreads / kSumLanes;
    const int lane = thread % kSumLanes;
    for (int i = 0; i < count; i += kBlocksAtOnce) {  // all threads alike: they add across the warp
        const int block = i + thread / kSumLanes;
        double sum = 0.0;
        if (block < count) {
            const int from = static_cast<int>(row_blocks.begin(first + block) - begin);
            const int to = block + 1 < count ? static_cast<int>(row_blocks.begin(first + block + 1) - begin) : size;
            for (int at = from + lane; at < to; at += kSumLanes) {
                const auto x = static_cast<double>(values[at]);
                sum = fma(x, x, sum);
            }
        }
        sum = sum_over_lanes(sum);
        if (lane == 0 && block < count) a.square_sums[first + block] = sum;
    }
}

__global__ void __launch_bounds__(kColumnSumThreads) momentum_by_columns_kernel(MomentumArguments a) {
    sum_squares_of_columns(
        a.square_sums, a.rows, a.columns, a.aligned,
        [&](auto at) { return load_momentum<decltype(at)::kLanes>(a, at.row * a.columns + at.column); },
        [&](auto at, const auto& v) { return step_momentum(a, at.row * a.columns + at.column, v); });
}

}  // namespace

void run(const Context& context, const MomentumUpdate& operation) {
    const Tensor& update = operation.update;
    const std::int64_t rows = update.rows(), columns = update.columns();
    if (update.count() == 0) return;
    const bool sums_columns = operation.square_sums.defined() && operation.by_columns;
    // Where columns are summed vectors begin in every row.
    const auto aligned = [](const Tensor& tensor) { return is_aligned(tensor, kLanesOf<float>, false); };
    const MomentumArguments arguments{.momentum = data<float>(operation.momentum),
                                      .update = data<float>(update),
                                      .gradient = data<const float>(operation.gradient),
                                      .square_sums = data<double>(operation.square_sums),
                                      .scale = operation.scale,
                                      .beta = operation.beta,
                                      .gradient_factor = operation.gradient_factor,
                                      .nesterov = operation.nesterov,
                                      .aligned = aligned(operation.momentum) && aligned(update) &&
                                                 aligned(operation.gradient) &&
                                                 (!sums_columns || columns % kLanesOf<float> == 0),
                                      .rows = rows,
                                      .columns = columns};
    if (sums_columns) {
        launch_kernel(momentum_by_columns_kernel, grid_of_column_sums(rows, columns), context.stream, arguments);
        return;
    }
    const RowBlocks row_blocks{columns, square_sums_of(columns)};
    const std::int64_t blocks = rows * row_blocks.in_row;
    const auto blocks_in_tile = static_cast<int>(kTileElements / std::min(columns, kSquareSumBlock));
    launch_kernel(momentum_kernel, Grid{static_cast<unsigned>(pieces_of(blocks, blocks_in_tile)), kThreads},
                  context.stream, arguments, row_blocks, blocks, blocks_in_tile);
}

}  // namespace mfsdp::device::cuda
