#pragma once

#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

/// Rows and columns of a tile that a block turns in shared memory.
inline constexpr int kTile = 64;

/// Elements between the rows of a tile. Rows are an odd number of 32-bit words apart: threads that read down a column
/// then meet different banks.
template <class Word>
inline constexpr int kTileStride = kTile + 4 / static_cast<int>(sizeof(Word));

/// Part of a matrix: `rows` x `columns` elements, kTile each unless the matrix ends before.
template <class Word>
struct TileOf {
    Word* data;
    std::int64_t stride;
    std::int64_t rows, columns;

    [[nodiscard]] __device__ bool is_whole() const { return rows >= kTile && columns >= kTile; }
};

/// Reads a tile into shared memory, 16 bytes at a time if it may be accessed so.
template <class Word>
__device__ inline void read_tile(Word* tile, const TileOf<const Word>& source, bool in_vectors) {
    constexpr int kLanes = kLanesOf<Word>, kVectors = kTile / kLanes;
    if (in_vectors) {
        MFSDP_UNROLL
        for (int i = 0; i < kTile * kVectors / kThreads; ++i) {
            const int vector = i * kThreads + static_cast<int>(threadIdx.x);
            const int row = vector / kVectors, column = vector % kVectors * kLanes;
            const auto bits = load_packed<kLanes>(source.data + row * source.stride + column);
            // The rows of the tile begin on 4 bytes only.
            auto* const words = reinterpret_cast<std::uint32_t*>(tile + row * kTileStride<Word> + column);
            MFSDP_UNROLL
            for (int word = 0; word < bits.kWords; ++word) memcpy(words + word, &bits.word[word], sizeof *words);
        }
        return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
        const int row = i / kTile, column = i % kTile;
        if (row >= source.rows || column >= source.columns) continue;
        tile[row * kTileStride<Word> + column] = source.data[row * source.stride + column];
    }
}

/// Writes a tile in shared memory transposed; rows and columns are those of `target`. `wanted(row, column)` says which
/// elements are written where that is done one by one.
template <class Word, class Wanted>
__device__ inline void write_transposed_tile(const TileOf<Word>& target, const Word* tile, bool in_vectors,
                                             const Wanted& wanted) {
    constexpr int kLanes = kLanesOf<Word>, kVectors = kTile / kLanes;
    if (in_vectors) {
        MFSDP_UNROLL
        for (int i = 0; i < kTile * kVectors / kThreads; ++i) {
            const int vector = i * kThreads + static_cast<int>(threadIdx.x);
            const int row = vector / kVectors, column = vector % kVectors * kLanes;
            Word lanes[kLanes];
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = tile[(column + lane) * kTileStride<Word> + row];
            Packed<Word, kLanes> bits;
            memcpy(&bits, lanes, sizeof bits);
            store_packed(target.data + row * target.stride + column, bits);
        }
        return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
        const int row = i / kTile, column = i % kTile;
        if (row >= target.rows || column >= target.columns || !wanted(row, column)) continue;
        target.data[row * target.stride + column] = tile[column * kTileStride<Word> + row];
    }
}

}  // namespace mfsdp::device::cuda
