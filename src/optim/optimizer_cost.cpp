#include "mfsdp/optim/optimizer_cost.h"

namespace mfsdp::optim {

namespace {

// Measured with mfsdp-bench ops on AVX2 cores, sides of 128 to 1024: products 75 GFLOP/s a core, a solver 12 to 24, a
// QR 10 to 15, elementwise work beyond the caches 12 GB/s. A plan must not depend on when it is made: these are no
// settings.
constexpr std::int64_t kEigenWeight = 4;
constexpr std::int64_t kOrthogonalWeight = 5;
constexpr std::int64_t kFlopsPerByte = 6;

}  // namespace

StepCost& StepCost::operator+=(const StepCost& other) {
    product_flops += other.product_flops;
    eigen_flops += other.eigen_flops;
    orthogonal_flops += other.orthogonal_flops;
    element_bytes += other.element_bytes;
    return *this;
}

double StepCost::seconds(const WorkRates& rates) const {
    const auto time = [](std::int64_t work, double rate) { return work == 0 ? 0.0 : static_cast<double>(work) / rate; };
    return time(product_flops, rates.product_flops) + time(eigen_flops, rates.eigen_flops) +
           time(orthogonal_flops, rates.orthogonal_flops) + time(element_bytes, rates.element_bytes);
}

std::int64_t StepCost::weighed_flops() const {
    return product_flops + kEigenWeight * eigen_flops + kOrthogonalWeight * orthogonal_flops +
           kFlopsPerByte * element_bytes;
}

StepCost operator+(StepCost a, const StepCost& b) { return a += b; }

StepCost OptimizerCost::mean() const {
    return step + StepCost{refresh.product_flops / frequency, refresh.eigen_flops / frequency,
                           refresh.orthogonal_flops / frequency, refresh.element_bytes / frequency};
}

StepCost OptimizerCost::at(std::int64_t step_number, std::int64_t number) const {
    return (step_number - skipped_steps + (staggered ? number : 0)) % frequency == 0 ? worst() : step;
}

}  // namespace mfsdp::optim
