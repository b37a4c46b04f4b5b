#pragma once

#include "device/cpu/float8.h"

#include <cstdint>

namespace mfsdp::device::cpu {

/// Products of tiles that fit the first two caches. Sums run over k in order, one fma a term.

/// Left factor, [m, k] with any strides: element (row, k) is data[row * row_stride + k * k_stride].
struct LeftTile {
    const float* data;
    std::int64_t row_stride, k_stride;
};
/// Right factor [k, n] or result [m, n]: rows of contiguous floats.
struct RightTile {
    const float* data;
    std::int64_t stride;
};
struct ResultTile {
    float* data;
    std::int64_t stride;
};

inline constexpr std::int64_t kProductRows = 4;      ///< m must be a multiple
inline constexpr std::int64_t kProductColumns = 16;  ///< n must be a multiple

/// result (+)= left right for kProductRows x kProductColumns: eight sums stay in registers.
template <bool kAccumulate>
inline void multiply_block(std::int64_t k_count, LeftTile left, RightTile right, ResultTile result) {
    Float8 sums[kProductRows][2];
    for (std::int64_t row = 0; row < kProductRows; ++row) {
        float* const target = result.data + row * result.stride;
        sums[row][0] = kAccumulate ? load(target) : Float8{};
        sums[row][1] = kAccumulate ? load(target + kLanes) : Float8{};
    }
    for (std::int64_t k = 0; k < k_count; ++k) {
        const Float8 first = load(right.data + k * right.stride);
        const Float8 second = load(right.data + k * right.stride + kLanes);
        for (std::int64_t row = 0; row < kProductRows; ++row) {
            const Float8 factor = broadcast(left.data[row * left.row_stride + k * left.k_stride]);
            sums[row][0] = fma(factor, first, sums[row][0]);
            sums[row][1] = fma(factor, second, sums[row][1]);
        }
    }
    for (std::int64_t row = 0; row < kProductRows; ++row) {
        store(result.data + row * result.stride, sums[row][0]);
        store(result.data + row * result.stride + kLanes, sums[row][1]);
    }
}

/// result [m, n] (+)= left [m, k] right [k, n].
template <bool kAccumulate>
inline void multiply(std::int64_t m, std::int64_t n, std::int64_t k, LeftTile left, RightTile right,
                     ResultTile result) {
    for (std::int64_t column = 0; column < n; column += kProductColumns) {
        for (std::int64_t row = 0; row < m; row += kProductRows) {
            multiply_block<kAccumulate>(k, {left.data + row * left.row_stride, left.row_stride, left.k_stride},
                                        {right.data + column, right.stride},
                                        {result.data + row * result.stride + column, result.stride});
        }
    }
}

}  // namespace mfsdp::device::cpu
