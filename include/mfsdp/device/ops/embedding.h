#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <string_view>

namespace mfsdp::device {

/// out[i] = table[ids[i]].  out [n, C], table [V, C] float32, ids [n] int32 in [0, V) (checked by the data loader).
struct EmbeddingForward {
    static constexpr std::string_view kName = "embedding_forward";
    Tensor out, table, ids;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// grad_table[v] = sum over i with ids[i] = v of grad_out[i], added in the order of i; rows without an id become 0.
struct EmbeddingBackward {
    static constexpr std::string_view kName = "embedding_backward";
    Tensor grad_table, grad_out, ids;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// x[b, t] += positions[t].  x [B, T, C] dense, positions [P, C] with P >= T.
struct PositionForward {
    static constexpr std::string_view kName = "position_forward";
    Tensor x, positions;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// grad_positions[t] = sum over b of grad_x[b, t], in the order of b; rows t >= T become 0.
struct PositionBackward {
    static constexpr std::string_view kName = "position_backward";
    Tensor grad_positions, grad_x;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
