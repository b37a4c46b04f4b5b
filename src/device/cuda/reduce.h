#pragma once

// Reductions over the threads that share a row: those of one threadIdx.y, blockDim.x of them. The order of additions is
// a tree within each warp and then the order of warps, whatever the values: the same bits on every run.
//
// blockDim.x is a power of two up to 32, or a multiple of 32; the block has whole warps. All threads of the block take
// part, also those whose row is beyond the last: their values are not looked at by others.

#include "device/cuda/launch.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace mfsdp::device::cuda {

/// Threads of a block that has `count` pieces of work: a power of two from a warp up to `most`.
[[nodiscard]] inline int threads_for(std::int64_t count, int most) {
    const auto wanted = static_cast<std::uint64_t>(std::clamp<std::int64_t>(count, kWarpSize, most));
    return static_cast<int>(std::bit_ceil(wanted));
}

struct Plus {
    template <class V>
    [[nodiscard]] __device__ V operator()(V a, V b) const {
        return a + b;
    }
};

/// NaN gives way to a number.
struct Largest {
    [[nodiscard]] __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Combines each of the values over the lanes of a warp that share a row; all of these get the result.
template <int kValues, class V, class Combine>
__device__ inline void combine_over_lanes(V (&values)[kValues], const Combine& combine) {
    const int width = blockDim.x < kWarpSize ? static_cast<int>(blockDim.x) : kWarpSize;
    MFSDP_UNROLL
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
        if (offset >= width) continue;
        MFSDP_UNROLL
        for (int i = 0; i < kValues; ++i) {
            values[i] = combine(values[i], __shfl_xor_sync(0xFFFFFFFFU, values[i], offset));
        }
    }
}

/// Combines each of the values over the threads of a row; all of these get the result.
template <int kValues, class V, class Combine>
__device__ inline void combine_over_row(V (&values)[kValues], const Combine& combine) {
    constexpr int kMostWarps = 32;
    combine_over_lanes(values, combine);
    if (blockDim.x <= kWarpSize) return;
    MFSDP_SHARED(V, partial[kValues][kMostWarps]);
    const int warps = static_cast<int>(blockDim.x) / kWarpSize;
    const int first = static_cast<int>(threadIdx.y) * warps;
    __syncthreads();  // the results of an earlier call have been read
    if (threadIdx.x % kWarpSize == 0) {
        MFSDP_UNROLL
        for (int i = 0; i < kValues; ++i) partial[i][first + static_cast<int>(threadIdx.x) / kWarpSize] = values[i];
    }
    __syncthreads();
    MFSDP_UNROLL
    for (int i = 0; i < kValues; ++i) {
        V total = partial[i][first];
        for (int warp = 1; warp < warps; ++warp) total = combine(total, partial[i][first + warp]);
        values[i] = total;
    }
}

template <int kValues, class V>
__device__ inline void sum_over_row(V (&values)[kValues]) {
    combine_over_row(values, Plus{});
}

[[nodiscard]] __device__ inline float largest_of_row(float value) {
    float values[1] = {value};
    combine_over_row(values, Largest{});
    return values[0];
}

}  // namespace mfsdp::device::cuda
