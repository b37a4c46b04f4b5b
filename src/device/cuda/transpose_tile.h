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

/// What becomes of an element while it is written: nothing.
struct AsItIs {
    template <class Word>
    [[nodiscard]] __device__ Word operator()(Word value) const {
        return value;
    }
};

/// Writes a tile in shared memory transposed; rows and columns are those of `target`. `wanted(row, column)` says which
/// elements are written where that is done one by one, `convert` makes an element of `target` of one of the tile.
template <class Out, class Word, class Wanted, class Convert = AsItIs>
__device__ inline void write_transposed_tile(const TileOf<Out>& target, const Word* tile, bool in_vectors,
                                             const Wanted& wanted, const Convert& convert = {}) {
    constexpr int kLanes = kLanesOf<Out>, kVectors = kTile / kLanes;
    if (in_vectors) {
        MFSDP_UNROLL
        for (int i = 0; i < kTile * kVectors / kThreads; ++i) {
            const int vector = i * kThreads + static_cast<int>(threadIdx.x);
            const int row = vector / kVectors, column = vector % kVectors * kLanes;
            Out lanes[kLanes];
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) {
                lanes[lane] = convert(tile[(column + lane) * kTileStride<Word> + row]);
            }
            Packed<Out, kLanes> bits;
            memcpy(&bits, lanes, sizeof bits);
            store_packed(target.data + row * target.stride + column, bits);
        }
        return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
        const int row = i / kTile, column = i % kTile;
        if (row >= target.rows || column >= target.columns || !wanted(row, column)) continue;
        target.data[row * target.stride + column] = convert(tile[column * kTileStride<Word> + row]);
    }
}

/// out [columns, rows] is made of in [rows, columns] transposed, a tile to a block.
template <class Out, class In>
struct TransposeArguments {
    Out* out;
    const In* in;
    std::int64_t rows, columns;
    std::int64_t out_stride, in_stride;
    std::int64_t tiles_across;
    bool aligned;

    [[nodiscard]] Grid grid() const { return {static_cast<unsigned>(pieces_of(rows, kTile) * tiles_across), kThreads}; }
};

template <class Out, class In>
[[nodiscard]] TransposeArguments<Out, In> transpose_arguments(const Tensor& out, const Tensor& in) {
    return {.out = data<Out>(out),
            .in = data<const In>(in),
            .rows = in.shape[0],
            .columns = in.shape[1],
            .out_stride = out.strides[0],
            .in_stride = in.strides[0],
            .tiles_across = pieces_of(in.shape[1], kTile),
            .aligned = is_aligned(out, kLanesOf<Out>, true) && is_aligned(in, kLanesOf<In>, true)};
}

/// Both sides are accessed 16 bytes at a time; the turn happens between the tile's rows, where a vector is written, and
/// its columns, where one is collected.
template <class Out, class In, class Convert>
__device__ inline void transpose_tile(const TransposeArguments<Out, In>& a, In* tile, const Convert& convert) {
    const std::int64_t down = quotient(blockIdx.x, a.tiles_across);
    const std::int64_t row = down * kTile, column = (blockIdx.x - down * a.tiles_across) * kTile;
    const TileOf<const In> source{a.in + row * a.in_stride + column, a.in_stride, a.rows - row, a.columns - column};
    const TileOf<Out> target{a.out + column * a.out_stride + row, a.out_stride, a.columns - column, a.rows - row};
    const bool in_vectors = a.aligned && source.is_whole();
    read_tile(tile, source, in_vectors);
    __syncthreads();
    write_transposed_tile(
        target, tile, in_vectors, [](int, int) { return true; }, convert);
}

}  // namespace mfsdp::device::cuda
