#pragma once

#include <cstdint>

namespace mfsdp::optim {

/// What one optimizer step of one matrix takes, by the kind of work, because the kinds run at different speeds
/// (docs/optimizers.md, cost).
struct StepCost {
    std::int64_t product_flops = 0;     ///< matrix products, symmetric ones counted with the triangle they compute
    std::int64_t eigen_flops = 0;       ///< symmetric eigen-decompositions, 9 d^3 each
    std::int64_t orthogonal_flops = 0;  ///< Householder QR with its factor Q formed, 8/3 d^3 each
    std::int64_t element_bytes = 0;     ///< read and written by elementwise work

    StepCost& operator+=(const StepCost& other);
    [[nodiscard]] std::int64_t flops() const { return product_flops + eigen_flops + orthogonal_flops; }
};

/// A step with everything in it, and the mean over many steps.
struct OptimizerCost {
    StepCost mean;
    StepCost worst;

    OptimizerCost& operator+=(const OptimizerCost& other);
};

/// `step` every time and `refresh` every `frequency` steps.
[[nodiscard]] OptimizerCost with_refresh(const StepCost& step, const StepCost& refresh, std::int64_t frequency);

}  // namespace mfsdp::optim
