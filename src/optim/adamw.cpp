#include "mfsdp/optim/adamw.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"

#include <cmath>

namespace mfsdp::optim {

std::vector<StateSpec> adamw_states(const std::vector<std::int64_t>& shape) {
    return {{.name = "exp_avg", .shape = shape, .element = true},
            {.name = "exp_avg_sq", .shape = shape, .element = true}};
}

void adamw_step(device::Stream& stream, const AdamWOptions& options, std::span<const ElementStep> steps) {
    if (steps.empty()) return;
    const ElementStep& first = steps.front();
    MFSDP_ASSERT(first.step >= 1, "steps are counted from 1");
    const auto t = static_cast<double>(first.step);
    device::AdamWStep operation{
        .scale = first.gradient_scale,
        .one_minus_beta1 = static_cast<float>(1.0 - options.beta1),
        .beta2 = static_cast<float>(options.beta2),
        .one_minus_beta2 = static_cast<float>(1.0 - options.beta2),
        .root_correction = static_cast<float>(std::sqrt(1.0 - std::pow(options.beta2, t))),
        .epsilon = static_cast<float>(options.epsilon),
    };
    const double mean_correction = 1.0 - std::pow(options.beta1, t);
    for (const ElementStep& step : steps) {
        MFSDP_ASSERT(step.step == first.step && step.gradient_scale.clip == first.gradient_scale.clip &&
                         step.gradient_scale.inverse_targets == first.gradient_scale.inverse_targets,
                     "parameters that share a launch share their step number and gradient scale");
        if (step.weight.count() == 0) continue;  // a rank may own no rows
        operation.tasks[static_cast<std::size_t>(operation.count++)] = {
            .weight = step.weight,
            .exp_avg = step.exp_avg,
            .exp_avg_sq = step.exp_avg_sq,
            .gradient = step.gradient,
            .decay = static_cast<float>(1.0 - step.learning_rate * step.weight_decay),
            .step_size = static_cast<float>(step.learning_rate / mean_correction)};
        if (operation.count < device::kMaxAdamWTasks) continue;
        device::launch(stream, operation);
        operation.count = 0;
    }
    if (operation.count > 0) device::launch(stream, operation);
}

}  // namespace mfsdp::optim
