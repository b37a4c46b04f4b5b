#pragma once

#include "device/cpu/float8.h"
#include "device/cpu/transpose8.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace mfsdp::device::cpu {

/// A part [outer, inner] of an operand: element (i, p) is data[i * outer_stride + p * inner_stride]. The outer stride
/// is 1, or the inner stride is 1 and the tiles are whole vectors.
struct Strip {
    const float* data = nullptr;
    std::int64_t outer = 0, inner = 0;
    std::int64_t outer_stride = 0, inner_stride = 0;
};

/// Elements of a packed strip.
[[nodiscard]] constexpr std::int64_t packed_size(std::int64_t outer, std::int64_t inner, std::int64_t tile) {
    return (outer + tile - 1) / tile * tile * inner;
}

/// Packs one full tile whose inner elements are contiguous, 8 x 8 elements at a time.
template <std::int64_t kTile>
void pack_tile_by_transposing(float* target, const Strip& strip, std::int64_t first) {
    static_assert(kTile % kLanes == 0);
    std::int64_t p = 0;
    for (; p + kLanes <= strip.inner; p += kLanes) {
        for (std::int64_t group = 0; group < kTile; group += kLanes) {
            std::array<Float8, 8> rows;
            for (std::int64_t i = 0; i < kLanes; ++i) {
                rows[static_cast<std::size_t>(i)] = load(strip.data + (first + group + i) * strip.outer_stride + p);
            }
            rows = transposed(rows);
            for (std::int64_t i = 0; i < kLanes; ++i) {
                store(target + (p + i) * kTile + group, rows[static_cast<std::size_t>(i)]);
            }
        }
    }
    for (; p < strip.inner; ++p) {
        for (std::int64_t i = 0; i < kTile; ++i) {
            target[p * kTile + i] = strip.data[(first + i) * strip.outer_stride + p];
        }
    }
}

/// Packs a strip as tiles of kTile outer indices, each tile inner index by inner index, the last one filled up with
/// zeros. `target` has room for packed_size(strip.outer, strip.inner, kTile) elements.
template <std::int64_t kTile>
void pack(float* target, const Strip& strip) {
    constexpr std::int64_t kRowsAhead = 8;
    const std::int64_t full = strip.outer / kTile * kTile;
    if (strip.outer_stride == 1) {
        // The inner index outside, so that memory is read in order.
        for (std::int64_t p = 0; p < strip.inner; ++p) {
            const float* const source = strip.data + p * strip.inner_stride;
            // Runs are too short for the processor to foresee the next row; 16 floats are one line.
            for (std::int64_t i = 0; i < full && p + kRowsAhead < strip.inner; i += 16) {
                __builtin_prefetch(source + kRowsAhead * strip.inner_stride + i);
            }
            for (std::int64_t first = 0; first < full; first += kTile) {
                std::memcpy(target + first * strip.inner + p * kTile, source + first, kTile * sizeof(float));
            }
        }
    } else if constexpr (kTile % kLanes == 0) {
        for (std::int64_t first = 0; first < full; first += kTile) {
            pack_tile_by_transposing<kTile>(target + first * strip.inner, strip, first);
        }
    }
    if (full == strip.outer) return;
    float* const last = target + full * strip.inner;
    for (std::int64_t p = 0; p < strip.inner; ++p) {
        for (std::int64_t i = 0; i < kTile; ++i) {
            last[p * kTile + i] =
                full + i < strip.outer ? strip.data[(full + i) * strip.outer_stride + p * strip.inner_stride] : 0.0F;
        }
    }
}

}  // namespace mfsdp::device::cpu
