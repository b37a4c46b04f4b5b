#include "mfsdp/optim/adamw.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"

#include <cmath>

namespace mfsdp::optim {

std::vector<StateSpec> adamw_states(const std::vector<std::int64_t>& shape) {
    return {{.name = "exp_avg", .shape = shape, .element = true},
            {.name = "exp_avg_sq", .shape = shape, .element = true}};
}

void adamw_step(device::Stream& stream, const AdamWOptions& options, const ElementStep& step) {
    MFSDP_ASSERT(step.step >= 1, "steps are counted from 1");
    if (step.weight.count() == 0) return;  // a rank may own no rows
    const auto t = static_cast<double>(step.step);
    device::launch(stream, device::AdamWStep{
                               .weight = step.weight,
                               .exp_avg = step.exp_avg,
                               .exp_avg_sq = step.exp_avg_sq,
                               .gradient = step.gradient,
                               .scale = step.gradient_scale,
                               .decay = static_cast<float>(1.0 - step.learning_rate * step.weight_decay),
                               .one_minus_beta1 = static_cast<float>(1.0 - options.beta1),
                               .beta2 = static_cast<float>(options.beta2),
                               .one_minus_beta2 = static_cast<float>(1.0 - options.beta2),
                               .step_size = static_cast<float>(step.learning_rate / (1.0 - std::pow(options.beta1, t))),
                               .root_correction = static_cast<float>(std::sqrt(1.0 - std::pow(options.beta2, t))),
                               .epsilon = static_cast<float>(options.epsilon),
                           });
}

}  // namespace mfsdp::optim
