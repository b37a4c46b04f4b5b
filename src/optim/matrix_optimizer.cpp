#include "mfsdp/optim/matrix_optimizer.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"
#include "mfsdp/optim/matrix_stepper.h"

#include <algorithm>
#include <iterator>

namespace mfsdp::optim {

using device::Tensor;

std::vector<StateSpec> MatrixOptimizer::states(std::int64_t rows, std::int64_t columns,
                                               std::span<const model::RowBlock> blocks) const {
    std::vector<StateSpec> result = block_states(rows, columns);
    if (blocks.empty()) return result;
    std::erase_if(result, [](const StateSpec& state) { return !state.element; });
    for (const model::RowBlock& block : blocks) {
        for (StateSpec& state : block_states(block.row_count, columns)) {
            if (state.element) continue;
            state.block = block.name;
            result.push_back(std::move(state));
        }
    }
    return result;
}

std::vector<RehearsalStep> refresh_period(std::int64_t from, std::int64_t frequency,
                                          std::span<const std::int64_t> shifts) {
    std::vector<std::int64_t> due;
    for (const std::int64_t shift : shifts) {
        const std::int64_t behind = (from + 1 + shift) % frequency;
        due.push_back(from + 1 + (behind == 0 ? 0 : frequency - behind));
    }
    std::sort(due.begin(), due.end());
    due.erase(std::unique(due.begin(), due.end()), due.end());
    std::vector<RehearsalStep> steps;
    const auto period = static_cast<double>(frequency);
    for (const std::int64_t step : due) steps.push_back({step, 1.0 / period});
    if (std::ssize(due) == frequency) return steps;
    std::int64_t idle = from + 1;
    while (std::binary_search(due.begin(), due.end(), idle)) ++idle;
    steps.push_back({idle, (period - static_cast<double>(due.size())) / period});
    return steps;
}

std::vector<RehearsalStep> MatrixOptimizer::rehearsal_steps(std::span<const std::int64_t> /*numbers*/) const {
    return {{1, 1.0}};
}

void MatrixOptimizer::average(device::Stream& /*stream*/, std::span<const Tensor> out,
                              std::span<const Tensor> /*element_states*/, std::int64_t /*step*/) {
    MFSDP_ASSERT(out.empty(), name() + " has no averages");
}

void MatrixOptimizer::observe(device::Stream& /*stream*/, device::BufferPool& /*workspace*/,
                              std::span<const BlockWork> /*blocks*/, std::int64_t /*step*/) {}

void MatrixOptimizer::refresh(device::Stream& /*stream*/, device::BufferPool& /*workspace*/,
                              std::span<const BlockWork> /*blocks*/, std::int64_t /*step*/) {}

void MatrixOptimizer::update(device::Stream& stream, const Tensor& weight, const Tensor& direction,
                             const WeightRule& rule) {
    if (weight.count() == 0) return;  // a rank may hold no rows
    if (rule.cautious) {
        device::launch(stream, device::CautiousUpdate{
                                   .weight = weight, .direction = direction, .decay = rule.decay, .step = rule.step});
    } else {
        device::launch(stream, device::WeightUpdate{
                                   .weight = weight, .direction = direction, .decay = rule.decay, .step = rule.step});
    }
}

void MatrixOptimizer::step(device::Stream& stream, device::BufferPool& workspace, const MatrixStep& matrix) {
    MatrixStepper(*this).step(stream, workspace, std::span<const MatrixStep>(&matrix, 1));
}

}  // namespace mfsdp::optim
