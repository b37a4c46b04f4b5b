#include "mfsdp/optim/optimizer_cost.h"

namespace mfsdp::optim {

StepCost& StepCost::operator+=(const StepCost& other) {
    product_flops += other.product_flops;
    eigen_flops += other.eigen_flops;
    orthogonal_flops += other.orthogonal_flops;
    element_bytes += other.element_bytes;
    return *this;
}

OptimizerCost& OptimizerCost::operator+=(const OptimizerCost& other) {
    mean += other.mean;
    worst += other.worst;
    return *this;
}

OptimizerCost with_refresh(const StepCost& step, const StepCost& refresh, std::int64_t frequency) {
    OptimizerCost cost{.mean = step, .worst = step};
    cost.worst += refresh;
    cost.mean += StepCost{refresh.product_flops / frequency, refresh.eigen_flops / frequency,
                          refresh.orthogonal_flops / frequency, refresh.element_bytes / frequency};
    return cost;
}

}  // namespace mfsdp::optim
