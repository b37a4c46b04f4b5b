#pragma once

#include "mfsdp/optim/matrix_optimizer.h"

#include <cstdint>
#include <span>
#include <vector>

namespace mfsdp::optim {

struct AdamWOptions {
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
};

/// One AdamW step of any rows of a parameter: all tensors float32, dense, of one count.
struct ElementStep {
    device::Tensor weight, gradient, exp_avg, exp_avg_sq;
    device::GradientScale gradient_scale{};
    double learning_rate = 0.0;
    double weight_decay = 0.0;
    std::int64_t step = 1;  ///< t = 1, 2, ...
};

/// exp_avg and exp_avg_sq, shaped like the parameter.
[[nodiscard]] std::vector<StateSpec> adamw_states(const std::vector<std::int64_t>& shape);

/// AdamW as PyTorch defines it (docs/optimizers.md, AdamW). Elementwise: any cut into rows gives the same bits. All are
/// of one step number and gradient scale and share launches.
void adamw_step(device::Stream& stream, const AdamWOptions& options, std::span<const ElementStep> steps);
/// The step of one parameter.
inline void adamw_step(device::Stream& stream, const AdamWOptions& options, const ElementStep& step) {
    adamw_step(stream, options, std::span(&step, 1));
}

}  // namespace mfsdp::optim
