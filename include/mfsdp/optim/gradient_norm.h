#pragma once

#include "mfsdp/base/exact_sum.h"

#include <cstdint>

namespace mfsdp::optim {

/// Norm of the mean gradient from the exact sum of squares of the summed gradient: sqrt(sum) / targets, in double.
/// With no targets the norm is 0.
[[nodiscard]] double gradient_norm(const ExactSum& sum_of_squares, std::int64_t targets);

/// min(1, clip_grad / norm); 1 if clip_grad is 0 (no clipping) or the norm is 0. InternalError if the norm is not
/// finite: such a step is skipped, never clipped.
[[nodiscard]] double clip_factor(double norm, double clip_grad);

}  // namespace mfsdp::optim
