#pragma once

#include "device/cpu/element.h"
#include "device/cpu/float8.h"
#include "device/cpu/transpose8.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace mfsdp::device::cpu {

/// A part [outer, inner] of an operand: element (i, p) is data[i * outer_stride + p * inner_stride]. The outer stride
/// is 1, or the inner stride is 1 and the tiles are whole vectors. Packing widens T to float.
template <class T>
struct Strip {
    const T* data = nullptr;
    std::int64_t outer = 0, inner = 0;
    std::int64_t outer_stride = 0, inner_stride = 0;
};

/// Elements of a packed strip.
[[nodiscard]] constexpr std::int64_t packed_size(std::int64_t outer, std::int64_t inner, std::int64_t tile) {
    return (outer + tile - 1) / tile * tile * inner;
}

/// Packs one full tile whose inner elements are contiguous, 8 x 8 elements at a time.
template <std::int64_t kTile, class T>
void pack_tile_by_transposing(float* target, const Strip<T>& strip, std::int64_t first) {
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
            target[p * kTile + i] = widened(strip.data[(first + i) * strip.outer_stride + p]);
        }
    }
}

/// target [kCount] = source, widened. `whole_vectors`: what follows, up to a multiple of 8, may be read and
/// overwritten, as it may for all inner indices but the last: there the next one's run lies, in both places, and is
/// written later.
template <std::int64_t kCount, class T>
void widen_run(float* target, const T* source, bool whole_vectors) {
    if constexpr (std::is_same_v<T, float>) {
        std::memcpy(target, source, kCount * sizeof(float));
    } else if (kCount % kLanes == 0 || whole_vectors) {
        for (std::int64_t i = 0; i < kCount; i += kLanes) store(target + i, load(source + i));
    } else {
        for (std::int64_t i = 0; i < kCount; ++i) target[i] = widened(source[i]);
    }
}

/// Packs a strip as tiles of kTile outer indices, each tile inner index by inner index, the last one filled up with
/// zeros. `target` has room for packed_size(strip.outer, strip.inner, kTile) elements.
template <std::int64_t kTile, class T>
void pack(float* target, const Strip<T>& strip) {
    constexpr std::int64_t kRowsAhead = 8;
    constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
    const std::int64_t full = strip.outer / kTile * kTile;
    if (strip.outer_stride == 1) {
        // The inner index outside, so that memory is read in order.
        for (std::int64_t p = 0; p < strip.inner; ++p) {
            const T* const source = strip.data + p * strip.inner_stride;
            // Runs are too short for the processor to foresee the next row; it is fetched line by line.
            for (std::int64_t i = 0; i < full && p + kRowsAhead < strip.inner; i += kLine) {
                __builtin_prefetch(source + kRowsAhead * strip.inner_stride + i);
            }
            for (std::int64_t first = 0; first < full; first += kTile) {
                widen_run<kTile>(target + first * strip.inner + p * kTile, source + first, p + 1 < strip.inner);
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
            const T* const element = strip.data + (full + i) * strip.outer_stride + p * strip.inner_stride;
            last[p * kTile + i] = full + i < strip.outer ? widened(*element) : 0.0F;
        }
    }
}

/// target [outer, inner] = the strip, whose inner elements are contiguous, widened.
template <class T>
void widen_rows(float* target, const Strip<T>& strip) {
    for (std::int64_t row = 0; row < strip.outer; ++row) {
        const T* const source = strip.data + row * strip.outer_stride;
        for_vectors(strip.inner, [=](std::int64_t i, std::int64_t lanes) {
            store_lanes(target + row * strip.inner + i, load_lanes(source + i, lanes), lanes);
        });
    }
}

}  // namespace mfsdp::device::cpu
