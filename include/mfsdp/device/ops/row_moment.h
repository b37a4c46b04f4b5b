#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <string_view>

namespace mfsdp::device {

// Row-wise second moments and updates that look at signs: NorMuon and cautious decay (docs/optimizers.md). Matrices are
// float32 [m, n] with strided rows.

/// moment [m] = beta moment + one_minus_beta * mean over the columns of in^2: squares and sums in double, in blocks of
/// a constant number of elements, the mean rounded once.
struct RowMoment {
    static constexpr std::string_view kName = "row_moment";
    Tensor moment, in;
    float beta = 0.95F, one_minus_beta = 0.05F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out = in / (sqrt(moment) + epsilon), a divisor for each row. out may be in.
struct DivideRows {
    static constexpr std::string_view kName = "divide_rows";
    Tensor out, in, moment;
    float epsilon = 1e-8F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out = in * (numerator / denominator), or 0 everywhere where the denominator is 0. numerator, denominator [1] float64
/// on the device; their quotient is rounded to float32 once. out may be in.
struct ScaleByRatio {
    static constexpr std::string_view kName = "scale_by_ratio";
    Tensor out, in, numerator, denominator;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// weight = decay weight - step direction where weight and direction have no opposite signs (zero has none), else
/// weight - step direction; rounded as in WeightUpdate.
struct CautiousUpdate {
    static constexpr std::string_view kName = "cautious_update";
    Tensor weight, direction;
    float decay = 1.0F, step = 0.0F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
