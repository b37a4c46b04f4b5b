#pragma once

#include "device/cpu/transpose_block.h"

#include <cstdint>

namespace mfsdp::device::cpu {

/// Rows mirrored by one call, a multiple of every kTransposeBlock.
inline constexpr std::int64_t kMirrorRows = 64;

/// Writes the part of rows [first, first + count) below the diagonal from the upper triangle; first is a multiple of
/// kMirrorRows. T is float, or std::uint16_t for elements of 16 bits. Calls for different rows may run at once.
template <class T>
void mirror_rows(T* matrix, std::int64_t stride, std::int64_t first, std::int64_t count) {
    constexpr std::int64_t kBlock = kTransposeBlock<T>;
    static_assert(kMirrorRows % kBlock == 0);
    const std::int64_t whole = count / kBlock * kBlock;
    for (std::int64_t column = 0; column < first; column += kBlock) {
        for (std::int64_t row = first; row < first + whole; row += kBlock) {
            transpose_block(matrix + row * stride + column, stride, matrix + column * stride + row, stride);
        }
    }
    for (std::int64_t row = first; row < first + count; ++row) {
        for (std::int64_t column = row < first + whole ? first : 0; column < row; ++column) {
            matrix[row * stride + column] = matrix[column * stride + row];
        }
    }
}

}  // namespace mfsdp::device::cpu
