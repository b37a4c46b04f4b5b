#include "runtime/bench/matrix_run.h"

#include "mfsdp/device/counting_device.h"
#include "mfsdp/device/device.h"

#include <array>
#include <utility>

namespace mfsdp::runtime {

using device::DType;

MatrixRun::MatrixRun(device::Device& device, std::shared_ptr<optim::MatrixOptimizer> optimizer, std::int64_t rows,
                     std::int64_t columns, std::int64_t workspace_bytes)
    : device_(device),
      optimizer_(std::move(optimizer)),
      stream_(device.make_stream()),
      pool_(device, ledger_, device::MemoryCategory::workspace, workspace_bytes) {
    const optim::StateSpec like_weight{.name = "weight", .shape = {rows, columns}};
    weight_ = tensor(like_weight);
    gradient_ = tensor(like_weight);
    for (const optim::StateSpec& spec : optimizer_->states(rows, columns)) states_.push_back(tensor(spec));
    device::launch(*stream_, device::FillNormal{.out = weight_, .key = 1, .standard_deviation = 0.02});
    device::launch(*stream_, device::FillNormal{.out = gradient_, .key = 2, .standard_deviation = 0.01});
}

MatrixRun::~MatrixRun() { stream_->synchronize(); }

device::Tensor MatrixRun::tensor(const optim::StateSpec& spec) {
    buffers_.emplace_back(device_, ledger_, device::MemoryCategory::state, spec.bytes());
    const device::Tensor result = spec.shape.size() == 2
                                      ? buffers_.back().view(spec.dtype, {spec.shape[0], spec.shape[1]})
                                      : buffers_.back().view(spec.dtype, {spec.count()});
    optim::start_state(*stream_, result, spec);
    return result;
}

void MatrixRun::step(std::int64_t t) {
    optimizer_->step(*stream_, pool_,
                     {.weight = weight_,
                      .gradient = gradient_,
                      .states = states_,
                      .learning_rate = 1e-4,
                      .weight_decay = 0.1,
                      .step = t});
}

std::int64_t matrix_workspace(const std::shared_ptr<optim::MatrixOptimizer>& optimizer, std::int64_t rows,
                              std::int64_t columns) {
    const auto counting = device::make_counting_device({});
    MatrixRun run(*counting, optimizer, rows, columns, -1);
    const std::array<std::int64_t, 1> numbers{0};
    for (const optim::RehearsalStep& step : optimizer->rehearsal_steps(numbers)) run.step(step.step);
    return run.workspace();
}

}  // namespace mfsdp::runtime
