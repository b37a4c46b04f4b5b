#include "mfsdp/runtime/train/owned_optimizer.h"

#include "mfsdp/base/error.h"

#include <algorithm>

namespace mfsdp::runtime {

namespace {

using device::DType;
using device::Tensor;

Tensor state_view(const device::Buffer& buffer, const optim::StateSpec& state, std::int64_t byte_offset) {
    if (state.shape.size() == 2) return buffer.view(state.dtype, {state.shape[0], state.shape[1]}, byte_offset);
    return buffer.view(state.dtype, {state.count()}, byte_offset);
}

/// The number of each parameter's first matrix, in model order over all matrices (row blocks) of the model.
std::vector<std::int64_t> matrix_numbers(const RankContext& context, bool split_row_blocks) {
    std::vector<std::int64_t> numbers;
    std::int64_t next = 0;
    for (const MatrixShard& shard : context.plan.shards) {
        numbers.push_back(next);
        if (shard.role != optim::Role::matrix) continue;
        const auto& blocks = context.spec.parameters[static_cast<std::size_t>(shard.parameter)].row_blocks;
        next += split_row_blocks && !blocks.empty() ? std::ssize(blocks) : 1;
    }
    return numbers;
}

/// Whether this rank is the lowest of those that hold these rows.
bool lowest_holder(const comm::Placement& placement, const OwnedRows& rows, int rank) {
    return std::none_of(placement.segments.begin(), placement.segments.end(), [&](const comm::Segment& segment) {
        return segment.rank < rank && segment.row_begin < rows.row_begin + rows.row_count &&
               rows.row_begin < segment.row_begin + segment.row_count;
    });
}

}  // namespace

OwnedOptimizer::OwnedOptimizer(const RankContext& context, const ParameterStore& weights,
                               const GradientStore& gradients, const OptimizerSetup& setup,
                               std::int64_t workspace_bytes)
    : context_(context),
      setup_(setup),
      gradients_(gradients),
      workspace_(context.device, context.ledger, device::MemoryCategory::workspace, workspace_bytes) {
    MFSDP_ASSERT(setup_.rates.size() == context.spec.parameters.size(), "rates are by parameter index");
    const std::vector<std::int64_t> numbers = matrix_numbers(context, setup_.split_row_blocks);
    std::vector<std::vector<optim::StateSpec>> specs;
    std::int64_t bytes = 0;
    for (const OwnedRows& rows : weights.owned()) {
        const auto p = static_cast<std::size_t>(rows.parameter);
        const model::ParameterSpec& spec = context.spec.parameters[p];
        const MatrixShard& shard = context.plan.shards[p];
        MFSDP_ASSERT(shard.optimizer == shard.gradient, "state lies where the sum lands");
        Owned owned{rows, shard.role, lowest_holder(shard.gradient, rows, context.rank), {}, {}, numbers[p]};
        if (shard.role == optim::Role::matrix) {
            MFSDP_ASSERT(setup_.matrix != nullptr && rows.row_count == spec.rows(), "a matrix is stepped whole");
            if (setup_.split_row_blocks) owned.blocks = spec.row_blocks;
            specs.push_back(setup_.matrix->states(spec.rows(), spec.columns(), owned.blocks));
        } else {
            specs.push_back(spec.shape.size() < 2 ? optim::adamw_states({spec.count()})
                                                  : optim::adamw_states({rows.row_count, spec.columns()}));
        }
        for (const optim::StateSpec& state : specs.back()) bytes += device::align_up(state.bytes());
        owned_.push_back(std::move(owned));
    }
    state_ = device::Buffer(context.device, context.ledger, device::MemoryCategory::state, bytes);
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < owned_.size(); ++i) {
        for (const optim::StateSpec& state : specs[i]) {
            owned_[i].states.push_back(state_view(state_, state, offset));
            offset += device::align_up(state.bytes());
            optim::start_state(context.compute, owned_[i].states.back(), state);
        }
    }
}

void OwnedOptimizer::count_squares(Tensor words) {
    device::launch(context_.compute, device::Fill{words, 0.0});
    for (const Owned& owned : owned_) {
        if (owned.counts_norm)
            device::launch(context_.compute, device::SquareSum{words, gradients_.gradient(owned.rows)});
    }
}

void OwnedOptimizer::step(std::int64_t step, double rate_factor, const device::GradientScale& scale,
                          std::vector<MatrixHealth>* health) {
    // Matrices take their step in one call, so that those of one shape and those to be refreshed can share it.
    matrices_.clear();
    for (const Owned& owned : owned_) {
        const ParameterRates& rates = setup_.rates[static_cast<std::size_t>(owned.rows.parameter)];
        const Tensor gradient = gradients_.gradient(owned.rows);
        const double learning_rate = rates.learning_rate * rate_factor;
        if (owned.role == optim::Role::matrix) {
            const optim::MatrixStep matrix{.weight = owned.rows.weight,
                                           .gradient = gradient,
                                           .states = owned.states,
                                           .blocks = owned.blocks,
                                           .number = owned.matrix_number,
                                           .gradient_scale = scale,
                                           .learning_rate = learning_rate,
                                           .weight_decay = rates.weight_decay,
                                           .step = step};
            if (health != nullptr && owned.counts_norm) {
                health->push_back(step_and_measure(context_.compute, workspace_, *setup_.matrix, matrix));
                health->back().parameter = owned.rows.parameter;
            } else {
                matrices_.push_back(matrix);
            }
        } else {
            optim::adamw_step(context_.compute, setup_.element,
                              {.weight = owned.rows.weight,
                               .gradient = gradient,
                               .exp_avg = owned.states[0],
                               .exp_avg_sq = owned.states[1],
                               .gradient_scale = scale,
                               .learning_rate = learning_rate,
                               .weight_decay = rates.weight_decay,
                               .step = step});
        }
    }
    if (setup_.matrix != nullptr) setup_.matrix->step(context_.compute, workspace_, matrices_);
}

}  // namespace mfsdp::runtime
