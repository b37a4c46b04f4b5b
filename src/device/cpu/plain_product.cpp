#include "device/cpu/float8.h"
#include "device/cpu/product.h"

#include <algorithm>
#include <array>

namespace mfsdp::device::cpu {

namespace {

// A tile of c that stays in registers: 6 x 2 vectors and three for the operands fill the sixteen of AVX2.
constexpr std::int64_t kTileRows = 6;
constexpr std::int64_t kTileColumns = 2 * kLanes;
// Packed parts of a and b that stay in the second-level cache. kInnerBlock also sets the order of additions.
constexpr std::int64_t kInnerBlock = 256;
constexpr std::int64_t kRowBlock = 16 * kTileRows;
constexpr std::int64_t kColumnBlock = 12 * kTileColumns;

struct Packed {
    alignas(64) std::array<float, kRowBlock * kInnerBlock> a;
    alignas(64) std::array<float, kColumnBlock * kInnerBlock> b;
};

struct Range {
    std::int64_t begin, size;
};

Range block(std::int64_t begin, std::int64_t block_size, std::int64_t end) {
    return {begin, std::min(block_size, end - begin)};
}

/// Packs the strip [outer, inner] of an operand as tiles of `tile` outer indices, each tile inner index by inner index,
/// padded with zeros. `outer_stride` and `inner_stride` walk the operand.
void pack(float* target, const float* source, std::int64_t outer_stride, std::int64_t inner_stride, Range outer,
          Range inner, std::int64_t tile) {
    for (std::int64_t first = 0; first < outer.size; first += tile) {
        const std::int64_t width = std::min(tile, outer.size - first);
        const float* const from = source + (outer.begin + first) * outer_stride + inner.begin * inner_stride;
        for (std::int64_t p = 0; p < inner.size; ++p) {
            for (std::int64_t i = 0; i < width; ++i) target[p * tile + i] = from[i * outer_stride + p * inner_stride];
            for (std::int64_t i = width; i < tile; ++i) target[p * tile + i] = 0.0F;
        }
        target += tile * inner.size;
    }
}

using Tile = std::array<std::array<Float8, 2>, kTileRows>;

Tile multiply_tile(const float* a, const float* b, std::int64_t inner) {
    Tile sums{};
    for (std::int64_t p = 0; p < inner; ++p) {
        const Float8 left = load(b + p * kTileColumns);
        const Float8 right = load(b + p * kTileColumns + kLanes);
#pragma GCC unroll 6
        for (std::size_t row = 0; row < kTileRows; ++row) {
            const Float8 factor = broadcast(a[p * kTileRows + static_cast<std::int64_t>(row)]);
            sums[row][0] = fma(factor, left, sums[row][0]);
            sums[row][1] = fma(factor, right, sums[row][1]);
        }
    }
    return sums;
}

/// beta is that of the product for the first block of the inner dimension and 1 afterwards.
void store_tile(const Tile& sums, const Product& product, Range rows, Range columns, float beta) {
    const Float8 alpha = broadcast(product.alpha);
    for (std::int64_t row = 0; row < rows.size; ++row) {
        float* const line = product.c + (rows.begin + row) * product.c_stride + columns.begin;
        for (std::int64_t half = 0; half < 2; ++half) {
            const std::int64_t lanes = std::clamp<std::int64_t>(columns.size - half * kLanes, 0, kLanes);
            if (lanes == 0) break;
            float* const target = line + half * kLanes;
            const Float8 sum = sums[static_cast<std::size_t>(row)][static_cast<std::size_t>(half)];
            const Float8 before = beta == 0.0F ? broadcast(0.0F) : broadcast(beta) * load_lanes(target, lanes);
            store_lanes(target, fma(alpha, sum, before), lanes);
        }
    }
}

void multiply_blocks(const Packed& packed, const Product& product, Range rows, Range columns, std::int64_t inner,
                     float beta) {
    for (std::int64_t column = 0; column < columns.size; column += kTileColumns) {
        const Range tile_columns{columns.begin + column, std::min(kTileColumns, columns.size - column)};
        for (std::int64_t row = 0; row < rows.size; row += kTileRows) {
            const Range tile_rows{rows.begin + row, std::min(kTileRows, rows.size - row)};
            const Tile sums = multiply_tile(packed.a.data() + row * inner, packed.b.data() + column * inner, inner);
            store_tile(sums, product, tile_rows, tile_columns, beta);
        }
    }
}

}  // namespace

void multiply_plainly(const Product& product) {
    Packed packed;  // half a megabyte at most: fits the stack of every thread
    const MatrixOperand& a = product.a;
    const MatrixOperand& b = product.b;
    const std::int64_t a_row = a.transposed ? 1 : a.stride, a_inner = a.transposed ? a.stride : 1;
    const std::int64_t b_column = b.transposed ? b.stride : 1, b_inner = b.transposed ? 1 : b.stride;
    for (std::int64_t column = 0; column < product.columns; column += kColumnBlock) {
        const Range columns = block(column, kColumnBlock, product.columns);
        for (std::int64_t p = 0; p < product.inner; p += kInnerBlock) {
            const Range inner = block(p, kInnerBlock, product.inner);
            pack(packed.b.data(), b.data, b_column, b_inner, columns, inner, kTileColumns);
            for (std::int64_t row = 0; row < product.rows; row += kRowBlock) {
                const Range rows = block(row, kRowBlock, product.rows);
                pack(packed.a.data(), a.data, a_row, a_inner, rows, inner, kTileRows);
                multiply_blocks(packed, product, rows, columns, inner.size, p == 0 ? product.beta : 1.0F);
            }
        }
    }
}

}  // namespace mfsdp::device::cpu
