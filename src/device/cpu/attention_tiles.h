#pragma once

#include "device/cpu/element.h"
#include "device/cpu/float8.h"
#include "device/cpu/kernels.h"
#include "device/cpu/tile_product.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace mfsdp::device::cpu {

/// Rows of queries and of keys in one tile. Equal and aligned, so only the tile on the diagonal needs the causal mask,
/// and that tile alone may be incomplete in both directions.
inline constexpr std::int64_t kTile = 64;
static_assert(kTile % kProductColumns == 0 && kTile % kProductRows == 0 && kTile % kLanes == 0);

inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

/// The rows of one head of one sequence: row t starts at data + t * stride.
template <class T>
struct HeadRows {
    T* data;
    std::int64_t stride;

    [[nodiscard]] HeadRows from(std::int64_t row) const { return {data + row * stride, stride}; }
};

/// tensor [B, T, H, D]: the rows of head `head` of sequence `batch`.
template <class T>
HeadRows<T> head_rows(const Context& context, const Tensor& tensor, std::int64_t batch, std::int64_t head) {
    return {context.data<T>(tensor) + batch * tensor.strides[0] + head * tensor.strides[2], tensor.strides[1]};
}

/// target [kTile, width] = rows [count, columns] * scale, zeros elsewhere; width is a multiple of 8 >= columns.
template <class T>
void pack_rows(float* target, std::int64_t width, HeadRows<const T> rows, std::int64_t count, std::int64_t columns,
               float scale = 1.0F) {
    for (std::int64_t row = 0; row < count; ++row) {
        float* const packed = target + row * width;
        for_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
            store(packed + i, load_lanes(rows.data + row * rows.stride + i, lanes) * broadcast(scale));
        });
        std::fill(packed + round_up(columns, kLanes), packed + width, 0.0F);
    }
    std::fill(target + count * width, target + kTile * width, 0.0F);
}

/// target [columns, kTile] = transposed rows [count, columns] * scale, zeros in the columns from count on.
template <class T>
void pack_transposed(float* target, HeadRows<const T> rows, std::int64_t count, std::int64_t columns,
                     float scale = 1.0F) {
    for (std::int64_t column = 0; column < columns; ++column) {
        float* const packed = target + column * kTile;
        for (std::int64_t row = 0; row < count; ++row)
            packed[row] = widened(rows.data[row * rows.stride + column]) * scale;
        std::fill(packed + count, packed + kTile, 0.0F);
    }
}

/// Sets to -infinity what lies above the diagonal of scores [key, query]: row `key` of the vector of queries
/// [query, query + 8) keeps the queries >= key.
[[nodiscard]] inline Float8 causal_mask(Float8 scores, std::int64_t key, std::int64_t query) {
    constexpr Mask8 kLaneIndex{0, 1, 2, 3, 4, 5, 6, 7};
    const Mask8 queries = kLaneIndex + static_cast<std::int32_t>(query);
    return queries < static_cast<std::int32_t>(key) ? broadcast(-std::numeric_limits<float>::infinity()) : scores;
}

}  // namespace mfsdp::device::cpu
