#pragma once

#include "device/cpu/float8.h"

#include <array>

namespace mfsdp::device::cpu {

/// The transpose of an 8 x 8 block, row by row: element j of result i is element i of row j. Pairs of rows are
/// interleaved element by element, then two by two, then four by four.
[[nodiscard]] inline std::array<Float8, 8> transposed(const std::array<Float8, 8>& rows) {
    std::array<Float8, 8> pairs, quads, result;
    for (std::size_t i = 0; i < 8; i += 2) {
        pairs[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        pairs[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (std::size_t i = 0; i < 8; i += 4) {
        for (std::size_t j = 0; j < 2; ++j) {
            quads[i + 2 * j] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            quads[i + 2 * j + 1] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    }
    for (std::size_t i = 0; i < 4; ++i) {
        result[i] = __builtin_shufflevector(quads[i], quads[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        result[i + 4] = __builtin_shufflevector(quads[i], quads[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    return result;
}

}  // namespace mfsdp::device::cpu
