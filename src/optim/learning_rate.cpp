#include "mfsdp/optim/learning_rate.h"

#include "mfsdp/base/error.h"

#include <cmath>
#include <numbers>

namespace mfsdp::optim {

double LearningRateSchedule::factor(std::int64_t step) const {
    MFSDP_ASSERT(step >= 1, "steps are counted from 1");
    if (step <= warmup_steps) return static_cast<double>(step) / static_cast<double>(warmup_steps);
    if (style == DecayStyle::constant || decay_steps < 1 || step <= total_steps - decay_steps) return 1.0;
    // Not left to the formulas: 1 - (1 - q) is not q in floating point, and steps past the end must not turn up again.
    if (step >= total_steps) return min_ratio;
    const double drop = 1.0 - min_ratio;
    const double x = static_cast<double>(step - (total_steps - decay_steps)) / static_cast<double>(decay_steps);
    switch (style) {
        case DecayStyle::linear:
            return 1.0 - drop * x;
        case DecayStyle::cosine:
            return min_ratio + drop * (1.0 + std::cos(std::numbers::pi * x)) / 2.0;
        case DecayStyle::wsd:
            return 1.0 - drop * std::sqrt(x);
        case DecayStyle::constant:
            break;
    }
    return 1.0;
}

}  // namespace mfsdp::optim
