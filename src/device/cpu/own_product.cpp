#include "device/cpu/float8.h"
#include "device/cpu/pack.h"
#include "device/cpu/product.h"
#include "device/cpu/scratch.h"

#include <algorithm>
#include <array>

namespace mfsdp::device::cpu {

namespace {

// A tile of c that stays in registers: 6 x 2 vectors and three for the operands fill the sixteen of AVX2.
constexpr std::int64_t kTileRows = 6;
constexpr std::int64_t kTileColumns = 2 * kLanes;
// A packed block of a (96 KiB) stays in the second-level cache while all of b passes; a packed tile of b (16 KiB) in
// the first-level cache while the tiles of a pass. kInnerBlock also sets the order of additions.
constexpr std::int64_t kInnerBlock = 256;
constexpr std::int64_t kRowBlock = 16 * kTileRows;
constexpr std::int64_t kColumnBlock = 48 * kTileColumns;

struct Range {
    std::int64_t begin, size;
};

Range block(std::int64_t begin, std::int64_t block_size, std::int64_t end) {
    return {begin, std::min(block_size, end - begin)};
}

template <class T>
Strip<T> rows_of_a(const Product<T>& product, Range rows, Range inner) {
    const MatrixOperand<T>& a = product.a;
    const std::int64_t row_stride = a.transposed ? 1 : a.stride, inner_stride = a.transposed ? a.stride : 1;
    return {a.data + rows.begin * row_stride + inner.begin * inner_stride, rows.size, inner.size, row_stride,
            inner_stride};
}

template <class T>
Strip<T> columns_of_b(const Product<T>& product, Range columns, Range inner) {
    const MatrixOperand<T>& b = product.b;
    const std::int64_t column_stride = b.transposed ? b.stride : 1, inner_stride = b.transposed ? 1 : b.stride;
    return {b.data + columns.begin * column_stride + inner.begin * inner_stride, columns.size, inner.size,
            column_stride, inner_stride};
}

/// Six rows of a as the tile reads them: packed inner index by inner index where a is transposed, else where they lie
/// (rows of 16-bit elements widened), for six streams of contiguous floats need no packing.
struct PackedRows {
    const float* data;
    [[nodiscard]] float at(std::size_t row, std::int64_t p) const {
        return data[p * kTileRows + static_cast<std::int64_t>(row)];
    }
};
struct RowsInPlace {
    std::array<const float*, kTileRows> data;
    [[nodiscard]] float at(std::size_t row, std::int64_t p) const { return data[row][p]; }
};

using Tile = std::array<std::array<Float8, 2>, kTileRows>;

// Not inlined: gcc 12 keeps the sums in memory where two of these loops share a function.
template <class Rows>
[[gnu::noinline]] Tile multiply_tile(Rows rows, const float* b, std::int64_t inner) {
    Tile sums{};
    for (std::int64_t p = 0; p < inner; ++p) {
        const Float8 left = load(b + p * kTileColumns);
        const Float8 right = load(b + p * kTileColumns + kLanes);
#pragma GCC unroll 6
        for (std::size_t row = 0; row < kTileRows; ++row) {
            const Float8 factor = broadcast(rows.at(row, p));
            sums[row][0] = fma(factor, left, sums[row][0]);
            sums[row][1] = fma(factor, right, sums[row][1]);
        }
    }
    return sums;
}

/// Where one block of the inner dimension puts its sums: the first starts from beta * out, each adds alpha * its sums,
/// the last adds the bias and stores to out, rounded once. Until then sums of an out of 16 bits lie in scratch.
template <class To>
struct Destination {
    Result<To> out;
    Result<float> sums;
    const float* bias;
    float alpha, beta;
    std::int64_t diagonal;  // see Product
    bool first, last;
};

template <class To>
void store_tile(const Tile& tile, const Destination<To>& to, Range rows, Range columns) {
    const Float8 alpha = broadcast(to.alpha);
    for (std::int64_t row = 0; row < rows.size; ++row) {
        To* const out = to.out.data + (rows.begin + row) * to.out.stride + columns.begin;
        float* const sums = to.sums.data + (rows.begin + row) * to.sums.stride + columns.begin;
        for (std::int64_t half = 0; half < 2; ++half) {
            const std::int64_t at = half * kLanes, lanes = std::clamp<std::int64_t>(columns.size - at, 0, kLanes);
            if (lanes == 0) break;
            Float8 before{};
            if (!to.first) {
                before = load_lanes(sums + at, lanes);
            } else if (to.beta != 0.0F) {
                before = broadcast(to.beta) * load_lanes(out + at, lanes);
            }
            Float8 value = fma(alpha, tile[static_cast<std::size_t>(row)][static_cast<std::size_t>(half)], before);
            if (!to.last) {
                store_lanes(sums + at, value, lanes);
                continue;
            }
            if (to.bias != nullptr) value += load_lanes(to.bias + columns.begin + at, lanes);
            store_lanes(out + at, value, lanes);
        }
    }
}

/// Rows past the last one repeat it; their results are not stored.
RowsInPlace rows_in_place(const Strip<float>& a, std::int64_t first) {
    RowsInPlace rows{};
    for (std::int64_t row = 0; row < kTileRows; ++row) {
        rows.data[static_cast<std::size_t>(row)] = a.data + std::min(first + row, a.outer - 1) * a.outer_stride;
    }
    return rows;
}

/// A block of a as multiply_blocks reads it: packed by tiles, or rows of floats.
struct BlockOfA {
    const float* packed;  ///< null if the rows are read where they lie
    Strip<float> rows;
};

/// The block is packed into `memory`, or its rows are widened there, or nothing is done.
template <class T>
BlockOfA prepare(float* memory, const Strip<T>& a, bool transposed) {
    if (transposed) {
        pack<kTileRows>(memory, a);
        return {memory, {}};
    }
    if constexpr (std::is_same_v<T, float>) {
        return {nullptr, a};
    } else {
        widen_rows(memory, a);
        return {nullptr, {memory, a.outer, a.inner, a.inner, 1}};
    }
}

template <class To>
void multiply_blocks(const BlockOfA& a, const float* packed_b, std::int64_t inner, const Destination<To>& to,
                     Range rows, Range columns) {
    for (std::int64_t column = 0; column < columns.size; column += kTileColumns) {
        const Range tile_columns{columns.begin + column, std::min(kTileColumns, columns.size - column)};
        const float* const b = packed_b + column * inner;
        for (std::int64_t row = 0; row < rows.size; row += kTileRows) {
            const Range tile_rows{rows.begin + row, std::min(kTileRows, rows.size - row)};
            // What follows in this column of tiles lies below the diagonal too.
            if (tile_columns.begin + tile_columns.size <= tile_rows.begin + to.diagonal) break;
            const Tile tile = a.packed != nullptr ? multiply_tile(PackedRows{a.packed + row * inner}, b, inner)
                                                  : multiply_tile(rows_in_place(a.rows, row), b, inner);
            store_tile(tile, to, tile_rows, tile_columns);
        }
    }
}

struct SumsUse {};

/// Memory for sums that are not complete: out itself if it is float32; none is needed for a single block.
template <class T, class To>
Result<float> place_for_sums(const Product<T>& product, const Result<To>& out) {
    if constexpr (std::is_same_v<To, float>) {
        return out;
    } else {
        const bool one_block = product.inner <= kInnerBlock;
        return {thread_scratch<float, SumsUse>(one_block ? 1 : product.rows * product.columns), product.columns};
    }
}

}  // namespace

template <class T, class To>
void multiply_by_own_kernel(const Product<T>& product, const Result<To>& result, const float* bias) {
    constexpr std::int64_t kSizeOfA = packed_size(kRowBlock, kInnerBlock, kTileRows);
    constexpr std::int64_t kSizeOfB = packed_size(kColumnBlock, kInnerBlock, kTileColumns);
    ScratchCutter scratch(thread_scratch(kSizeOfA + kSizeOfB + 32));
    float* const a = scratch.take(kSizeOfA);
    float* const b = scratch.take(kSizeOfB);
    Destination<To> to{
        result, place_for_sums(product, result), bias, product.alpha, product.beta, product.diagonal, true, true};
    for (std::int64_t column = 0; column < product.columns; column += kColumnBlock) {
        const Range columns = block(column, kColumnBlock, product.columns);
        for (std::int64_t p = 0; p < product.inner; p += kInnerBlock) {
            const Range inner = block(p, kInnerBlock, product.inner);
            to.first = p == 0;
            to.last = p + kInnerBlock >= product.inner;
            pack<kTileColumns>(b, columns_of_b(product, columns, inner));
            for (std::int64_t row = 0; row < product.rows; row += kRowBlock) {
                const Range rows = block(row, kRowBlock, product.rows);
                const BlockOfA prepared = prepare(a, rows_of_a(product, rows, inner), product.a.transposed);
                multiply_blocks(prepared, b, inner.size, to, rows, columns);
            }
        }
    }
}

template void multiply_by_own_kernel(const Product<float>&, const Result<float>&, const float*);
template void multiply_by_own_kernel(const Product<float>&, const Result<BFloat16>&, const float*);
template void multiply_by_own_kernel(const Product<float>&, const Result<Float16>&, const float*);
template void multiply_by_own_kernel(const Product<BFloat16>&, const Result<float>&, const float*);
template void multiply_by_own_kernel(const Product<BFloat16>&, const Result<BFloat16>&, const float*);
template void multiply_by_own_kernel(const Product<BFloat16>&, const Result<Float16>&, const float*);
template void multiply_by_own_kernel(const Product<Float16>&, const Result<float>&, const float*);
template void multiply_by_own_kernel(const Product<Float16>&, const Result<BFloat16>&, const float*);
template void multiply_by_own_kernel(const Product<Float16>&, const Result<Float16>&, const float*);

}  // namespace mfsdp::device::cpu
