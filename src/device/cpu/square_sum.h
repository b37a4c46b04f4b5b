#pragma once

#include "device/cpu/element.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace mfsdp::device::cpu {

// Elements of one partial sum within a row. Part of the definition of FrobeniusNorm, SquareSum and RowMoment: changing
// it changes bits.
inline constexpr std::int64_t kSumBlock = 4096;
// Partial sums of one block, added as a tree: wide enough for the vector units of every processor.
inline constexpr std::size_t kSumLanes = 16;

/// Sum of squares of one block; element i goes to lane i mod 16. A square of a float is exact in double.
inline double square_sum_of_block(const float* values, std::int64_t count) {
    std::array<double, kSumLanes> lanes{};
    std::int64_t i = 0;
    for (; i + static_cast<std::int64_t>(kSumLanes) <= count; i += static_cast<std::int64_t>(kSumLanes)) {
        for (std::size_t lane = 0; lane < kSumLanes; ++lane) {
            const auto x = static_cast<double>(values[i + static_cast<std::int64_t>(lane)]);
            lanes[lane] += x * x;
        }
    }
    for (std::size_t lane = 0; i < count; ++i, ++lane) {
        const auto x = static_cast<double>(values[i]);
        lanes[lane] += x * x;
    }
    for (std::size_t width = kSumLanes / 2; width > 0; width /= 2) {
        for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    }
    return lanes[0];
}

/// The same of 16-bit elements, widened first.
template <class T>
requires kIsHalf<T>
[[nodiscard]] double square_sum_of_block(const T* values, std::int64_t count) {
    float wide[kSumBlock];
    for_vectors(count, [&](std::int64_t i, std::int64_t lanes) {
        store_lanes(wide + i, load_lanes(values + i, lanes), lanes);
    });
    return square_sum_of_block(wide, count);
}

inline double square_sum_of_row(const float* row, std::int64_t columns) {
    double sum = 0.0;
    for (std::int64_t begin = 0; begin < columns; begin += kSumBlock) {
        sum += square_sum_of_block(row + begin, std::min(kSumBlock, columns - begin));
    }
    return sum;
}

}  // namespace mfsdp::device::cpu
