#pragma once

#include "mfsdp/device/ops/optimizer.h"

#include "device/cpu/element.h"
#include "device/cpu/pieces.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace mfsdp::device::cpu {

// Partial sums of one block, added as a tree: wide enough for the vector units of every processor. Changing it changes
// bits.
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
    float wide[kSquareSumBlock];
    for_vectors(count, [&](std::int64_t i, std::int64_t lanes) {
        store_lanes(wide + i, load_lanes(values + i, lanes), lanes);
    });
    return square_sum_of_block(wide, count);
}

inline double square_sum_of_row(const float* row, std::int64_t columns) {
    double sum = 0.0;
    for (std::int64_t begin = 0; begin < columns; begin += kSquareSumBlock) {
        sum += square_sum_of_block(row + begin, std::min(kSquareSumBlock, columns - begin));
    }
    return sum;
}

/// sums[r, b] of the rows of a matrix, b counting blocks of columns. `row(r, begin, size)` is called once for each
/// block and gives its elements.
template <class Row>
void square_sums_by_rows(ThreadPool& threads, std::int64_t rows, std::int64_t columns, double* sums, const Row& row) {
    const std::int64_t blocks = square_sums_of(columns);
    const std::int64_t blocks_per_piece = kPieceElements / std::clamp<std::int64_t>(columns, 1, kSquareSumBlock);
    for_pieces(threads, rows * blocks, blocks_per_piece, [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t i = first; i < first + count; ++i) {
            const std::int64_t begin = i % blocks * kSquareSumBlock, size = std::min(kSquareSumBlock, columns - begin);
            sums[i] = square_sum_of_block(row(i / blocks, begin, size), size);
        }
    });
}

/// sums[c, b] of the columns of a matrix, b counting blocks of rows: what square_sum_of_block gives for the transpose.
/// `row(r, begin, size)` is called once for each part of a row and gives its floats.
template <class Row>
void square_sums_by_columns(ThreadPool& threads, std::int64_t rows, std::int64_t columns, double* sums,
                            const Row& row) {
    constexpr std::int64_t kGroup = 64;  // columns: a row's part is a few lines of the cache, their lanes lie in it
    const std::int64_t blocks = square_sums_of(rows), groups = (columns + kGroup - 1) / kGroup;
    for_pieces(threads, blocks * groups, 1, [&](std::int64_t piece, std::int64_t /*count*/) {
        const std::int64_t block = piece / groups, begin = piece % groups * kGroup;
        const std::int64_t size = std::min(kGroup, columns - begin);
        const std::int64_t first = block * kSquareSumBlock, last = std::min(first + kSquareSumBlock, rows);
        std::array<std::array<double, kGroup>, kSumLanes> lanes{};
        for (std::int64_t r = first; r < last; ++r) {
            const float* const values = row(r, begin, size);
            auto& lane = lanes[static_cast<std::size_t>(r - first) % kSumLanes];
            for (std::int64_t c = 0; c < size; ++c) {
                const auto x = static_cast<double>(values[c]);
                lane[static_cast<std::size_t>(c)] += x * x;
            }
        }
        for (std::size_t width = kSumLanes / 2; width > 0; width /= 2) {
            for (std::size_t lane = 0; lane < width; ++lane) {
                for (std::size_t c = 0; c < kGroup; ++c) lanes[lane][c] += lanes[lane + width][c];
            }
        }
        for (std::int64_t c = 0; c < size; ++c)
            sums[(begin + c) * blocks + block] = lanes[0][static_cast<std::size_t>(c)];
    });
}

}  // namespace mfsdp::device::cpu
