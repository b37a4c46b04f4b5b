#include "mfsdp/optim/matrix_optimizer.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"

#include <array>

namespace mfsdp::optim {

namespace {

void check(const MatrixOptimizer& optimizer, const MatrixStep& step) {
    MFSDP_ASSERT(step.weight.rank == 2 && same_shape(step.weight, step.gradient),
                 "weight " + step.weight.describe() + " and gradient " + step.gradient.describe() +
                     " are matrices of one shape");
    MFSDP_ASSERT(step.step >= 1, "steps are counted from 1");
    const auto specs = optimizer.states(step.weight.rows(), step.weight.columns());
    MFSDP_ASSERT(step.states.size() == specs.size(),
                 optimizer.name() + " has " + std::to_string(specs.size()) + " states for each matrix");
    std::int64_t row = 0;
    for (const model::RowBlock& block : step.blocks) {
        MFSDP_ASSERT(block.row_begin == row && block.row_count >= 1,
                     "row block " + block.name + " starts where the one before it ends");
        row += block.row_count;
    }
    MFSDP_ASSERT(step.blocks.empty() || row == step.weight.rows(),
                 "row blocks tile the rows of weight " + step.weight.describe());
}

}  // namespace

void MatrixOptimizer::step(device::Stream& stream, device::BufferPool& workspace, const MatrixStep& step) {
    check(*this, step);
    const std::int64_t rows = step.weight.rows();
    const std::int64_t columns = step.weight.columns();
    const device::PooledBuffer buffer(workspace, stream, rows * columns * device::size_of(device::DType::float32));
    const device::Tensor update = buffer.view(device::DType::float32, {rows, columns});
    accumulate(stream, update, step.gradient, step.states, step.gradient_scale);

    const std::array<model::RowBlock, 1> whole{{{"", 0, rows}}};
    const std::span<const model::RowBlock> blocks =
        step.blocks.empty() ? std::span<const model::RowBlock>(whole) : step.blocks;
    for (const model::RowBlock& block : blocks) {
        const device::Tensor part = update.slice(0, block.row_begin, block.row_count);
        direction(stream, workspace, part, part);
        // Decay follows the plain rate: the scale is there for the size of the direction only.
        device::launch(stream, device::WeightUpdate{
                                   .weight = step.weight.slice(0, block.row_begin, block.row_count),
                                   .direction = part,
                                   .decay = static_cast<float>(1.0 - step.learning_rate * step.weight_decay),
                                   .step = static_cast<float>(step.learning_rate * scale(block.row_count, columns)),
                               });
    }
}

}  // namespace mfsdp::optim
