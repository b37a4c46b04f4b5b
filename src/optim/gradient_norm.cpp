#include "mfsdp/optim/gradient_norm.h"

#include "mfsdp/base/error.h"

#include <cmath>

namespace mfsdp::optim {

double gradient_norm(const ExactSum& sum_of_squares, std::int64_t targets) {
    MFSDP_ASSERT(targets >= 0, "a count of targets is not negative");
    if (targets == 0) return 0.0;
    return std::sqrt(sum_of_squares.value()) / static_cast<double>(targets);
}

double clip_factor(double norm, double clip_grad) {
    MFSDP_ASSERT(std::isfinite(norm) && norm >= 0.0, "steps with a non-finite gradient are skipped before clipping");
    if (clip_grad == 0.0 || norm <= clip_grad) return 1.0;
    return clip_grad / norm;
}

}  // namespace mfsdp::optim
