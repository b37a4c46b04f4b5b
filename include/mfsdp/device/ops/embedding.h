#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <cstdint>
#include <string_view>

namespace mfsdp::device {

// Tables may be float32 or bfloat16; sums run in float32 and are rounded once.

/// out[i] = table[ids[i] - row_begin] where that is a row of the table; other rows of out stay as they are. So the
/// vocabulary may come panel by panel: `table` holds its rows [row_begin, row_begin + V).
///
/// out [n, C] in the table's type, table [V, C], ids [n] int32 (in the vocabulary: checked by the data loader).
struct EmbeddingForward {
    static constexpr std::string_view kName = "embedding_forward";
    Tensor out, table, ids;
    std::int64_t row_begin = 0;
    void check() const;
    /// As if every id were in the table: which are is known to the data alone.
    [[nodiscard]] Cost cost() const;
};

/// grad_table[v] = sum over i with ids[i] = row_begin + v of grad_out[i], added in the order of i; rows without an id
/// become 0. The types of grad_table and grad_out are independent. Nothing is done if grad_table is undefined.
struct EmbeddingBackward {
    static constexpr std::string_view kName = "embedding_backward";
    Tensor grad_table, grad_out, ids;
    std::int64_t row_begin = 0;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// x[b, t] += positions[t].  x [B, T, C] dense, positions [P, C] of the same type with P >= T.
struct PositionForward {
    static constexpr std::string_view kName = "position_forward";
    Tensor x, positions;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// grad_positions[t] = sum over b of grad_x[b, t], in the order of b; rows t >= T become 0. The two types are
/// independent. Nothing is done if grad_positions is undefined.
struct PositionBackward {
    static constexpr std::string_view kName = "position_backward";
    Tensor grad_positions, grad_x;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
