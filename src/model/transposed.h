#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mfsdp::model {

/// values [rows, columns] -> [columns, rows]: the way from a file's Conv1D matrix to memory, and back.
[[nodiscard]] inline std::vector<float> transposed(std::span<const float> values, std::int64_t rows,
                                                   std::int64_t columns) {
    std::vector<float> result(values.size());
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t column = 0; column < columns; ++column) {
            result[static_cast<std::size_t>(column * rows + row)] =
                values[static_cast<std::size_t>(row * columns + column)];
        }
    }
    return result;
}

}  // namespace mfsdp::model
