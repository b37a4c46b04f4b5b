#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <cstdint>
#include <string_view>

namespace mfsdp::device {

/// Scales down the rows of attention heads whose largest logit is above a threshold (docs/optimizers.md, QK-clip).
///
/// Query heads [g q, (g + 1) q) and key head g are a group, q = number of logits / key_heads. S = the largest of the
/// group's logits; where S > threshold, the group's rows are multiplied by (threshold / S)^exponent, computed in double
/// and rounded once; all other rows keep their bits.
/// weight  [m, n] with strided rows, or a bias [m], float32: rows [row_begin, row_begin + m) of the query or key
///         projection, whose group g has the rows [g rows_in_group, (g + 1) rows_in_group)
/// logits  [query heads] float32
struct QkClip {
    static constexpr std::string_view kName = "qk_clip";
    Tensor weight, logits;
    std::int64_t key_heads = 1;
    std::int64_t rows_in_group = 1;
    std::int64_t row_begin = 0;
    double threshold = 100.0;
    double exponent = 0.5;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
