#pragma once

#include <cstdint>

namespace mfsdp::optim {

enum class DecayStyle { constant, linear, cosine, wsd };

/// The scheduled part of the learning rate, a function of the step and of constants only: a resumed run needs no
/// scheduler state.
///
/// Warm-up takes steps 1..warmup_steps, decay the last decay_steps steps, and between them the factor is 1.
/// Requires warmup_steps, decay_steps >= 0, warmup_steps + decay_steps <= total_steps (constant: decay_steps is not
/// looked at) and min_ratio in [0, 1]; the configuration has checked all of it.
struct LearningRateSchedule {
    std::int64_t warmup_steps = 0;
    std::int64_t decay_steps = 0;
    std::int64_t total_steps = 0;
    DecayStyle style = DecayStyle::cosine;
    double min_ratio = 0.0;  ///< final rate / peak rate

    /// The factor of step `step` (the first step is 1), to be multiplied by the peak rate of a section.
    ///
    /// With decay_steps >= 1 and a style other than constant, step total_steps and all later ones give exactly
    /// min_ratio. step >= 1, else InternalError. Source: docs/config.md, "Learning rate".
    [[nodiscard]] double factor(std::int64_t step) const;
};

}  // namespace mfsdp::optim
