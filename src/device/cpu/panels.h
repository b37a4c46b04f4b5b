#pragma once

#include <cstdint>

namespace mfsdp::device::cpu {

/// How a product is cut: into panels of `rows` x `columns` (the last ones smaller), never along the inner dimension.
struct Panels {
    std::int64_t rows = 0, columns = 0;

    [[nodiscard]] std::int64_t row_panels(std::int64_t all) const { return (all + rows - 1) / rows; }
    [[nodiscard]] std::int64_t column_panels(std::int64_t all) const { return (all + columns - 1) / columns; }
};

/// The panels of a product of [rows, inner] and [inner, columns]. A function of the shape alone: a library's bits
/// depend on the extent of a panel, so threads, batch and addresses must not enter. All arguments >= 0.
[[nodiscard]] Panels cut_into_panels(std::int64_t rows, std::int64_t columns, std::int64_t inner);

/// The same for a product [size, size] of which only the panels that reach above the diagonal are computed.
[[nodiscard]] Panels cut_symmetric(std::int64_t size, std::int64_t inner);

}  // namespace mfsdp::device::cpu
