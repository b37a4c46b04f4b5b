#include "mfsdp/optim/optimizer_cost.h"

namespace mfsdp::optim {

StepCost& StepCost::operator+=(const StepCost& other) {
    product_flops += other.product_flops;
    eigen_flops += other.eigen_flops;
    orthogonal_flops += other.orthogonal_flops;
    element_bytes += other.element_bytes;
    return *this;
}

StepCost operator+(StepCost a, const StepCost& b) { return a += b; }

StepCost OptimizerCost::mean() const {
    return step + StepCost{refresh.product_flops / frequency, refresh.eigen_flops / frequency,
                           refresh.orthogonal_flops / frequency, refresh.element_bytes / frequency};
}

StepCost OptimizerCost::at(std::int64_t update, std::int64_t number) const {
    return (update + (staggered ? number : 0)) % frequency == 0 ? worst() : step;
}

}  // namespace mfsdp::optim
