#pragma once

#include <cstdint>

namespace mfsdp::optim {

/// How much of each kind of work a rank does in a second.
struct WorkRates {
    double product_flops = 0.0, eigen_flops = 0.0, orthogonal_flops = 0.0, element_bytes = 0.0;
};

/// What optimizer work takes, by kind, because the kinds run at different speeds (docs/optimizers.md, cost).
struct StepCost {
    std::int64_t product_flops = 0;     ///< matrix products, symmetric ones counted with the triangle they compute
    std::int64_t eigen_flops = 0;       ///< symmetric eigen-decompositions, 9 d^3 each
    std::int64_t orthogonal_flops = 0;  ///< Householder QR with its factor Q formed, 8/3 d^3 each
    std::int64_t element_bytes = 0;     ///< read and written by elementwise work

    StepCost& operator+=(const StepCost& other);
    [[nodiscard]] std::int64_t flops() const { return product_flops + eigen_flops + orthogonal_flops; }
    /// Time of one kind after the other; a kind that there is no work of needs no rate.
    [[nodiscard]] double seconds(const WorkRates& rates) const;
    /// The FLOPs that products do in the same time, by the speeds of a processor core beside each other: what the
    /// planner balances.
    [[nodiscard]] std::int64_t weighed_flops() const;
};

[[nodiscard]] StepCost operator+(StepCost a, const StepCost& b);

/// What the optimizer does for one matrix: `step` every time, and `refresh` every `frequency` steps.
struct OptimizerCost {
    StepCost step;
    StepCost refresh{};
    std::int64_t frequency = 1;
    bool staggered = false;          ///< matrices take turns by their number; else all are refreshed in one step
    std::int64_t skipped_steps = 0;  ///< at the start of a run, which are no updates

    /// Over many steps.
    [[nodiscard]] StepCost mean() const;
    /// Of a step with a refresh.
    [[nodiscard]] StepCost worst() const { return step + refresh; }
    /// Of step t, long after the start, for the matrix of this number.
    [[nodiscard]] StepCost at(std::int64_t step_number, std::int64_t number) const;
};

}  // namespace mfsdp::optim
