#pragma once

#include "device/cpu/element.h"
#include "device/cpu/transpose8.h"

#include <array>
#include <cstdint>
#include <cstring>

namespace mfsdp::device::cpu {

// Transposing moves bits and never looks at values, so 16 bits of any type are moved as integers: no rounding, and a
// NaN keeps its payload.
[[nodiscard]] inline Float8 load_bits(const float* source) { return load(source); }
[[nodiscard]] inline Float8 load_bits(const std::uint16_t* source) {
    return reinterpret_cast<Float8>(zero_extended(load_halves(source)));
}
inline void store_bits(float* target, Float8 bits) { store(target, bits); }
inline void store_bits(std::uint16_t* target, Float8 bits) {
    const Half8 halves = low_halves(reinterpret_cast<Word8>(bits));
    std::memcpy(target, &halves, sizeof halves);
}

// Elements in one line of the cache. Rows of weight matrices often lie a multiple of 4 KiB apart, where all their lines
// compete for eight places of the first-level cache: each line is read once and written once, whole.
template <class T>
inline constexpr std::int64_t kTransposeBlock = 64 / static_cast<std::int64_t>(sizeof(T));

/// out = in transposed, kTransposeBlock<T> rows and columns; the two do not overlap.
template <class T>
void transpose_block(T* out, std::int64_t out_stride, const T* in, std::int64_t in_stride) {
    T lines[kTransposeBlock<T>][kTransposeBlock<T>];  // the transposed block
    for (std::int64_t row = 0; row < kTransposeBlock<T>; row += kLanes) {
        for (std::int64_t column = 0; column < kTransposeBlock<T>; column += kLanes) {
            std::array<Float8, 8> part;
            for (std::size_t i = 0; i < 8; ++i) {
                part[i] = load_bits(in + (row + static_cast<std::int64_t>(i)) * in_stride + column);
            }
            part = transposed(part);
            for (std::size_t i = 0; i < 8; ++i) store_bits(&lines[column + static_cast<std::int64_t>(i)][row], part[i]);
        }
    }
    for (std::int64_t row = 0; row < kTransposeBlock<T>; ++row)
        std::memcpy(out + row * out_stride, lines[row], sizeof lines[row]);
}

/// The same of a block at the edge of a matrix, `rows` x `columns` elements of `in`.
template <class T>
void transpose_part(T* out, std::int64_t out_stride, const T* in, std::int64_t in_stride, std::int64_t rows,
                    std::int64_t columns) {
    if (rows == kTransposeBlock<T> && columns == kTransposeBlock<T>) {
        return transpose_block(out, out_stride, in, in_stride);
    }
    for (std::int64_t c = 0; c < columns; ++c) {
        for (std::int64_t r = 0; r < rows; ++r) out[c * out_stride + r] = in[r * in_stride + c];
    }
}

}  // namespace mfsdp::device::cpu
