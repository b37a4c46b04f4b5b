#include "mfsdp/runtime/train/owned_optimizer.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <iterator>

namespace mfsdp::runtime {

namespace {

using device::DType;
using device::Tensor;

Tensor state_view(const device::Buffer& buffer, const optim::StateSpec& state, std::int64_t byte_offset) {
    if (state.shape.size() == 2) return buffer.view(state.dtype, {state.shape[0], state.shape[1]}, byte_offset);
    return buffer.view(state.dtype, {state.count()}, byte_offset);
}

/// Whether this rank is the lowest of those that hold these rows.
bool lowest_holder(const comm::Placement& placement, const OwnedRows& rows, int rank) {
    return std::none_of(placement.segments.begin(), placement.segments.end(), [&](const comm::Segment& segment) {
        return segment.rank < rank && segment.row_begin < rows.row_begin + rows.row_count &&
               rows.row_begin < segment.row_begin + segment.row_count;
    });
}

/// Which block of a parameter a state belongs to.
std::int64_t block_index(const std::vector<model::RowBlock>& blocks, const optim::StateSpec& state) {
    if (blocks.empty()) return 0;
    const auto found = std::find_if(blocks.begin(), blocks.end(),
                                    [&](const model::RowBlock& block) { return block.name == state.block; });
    return found - blocks.begin();
}

/// Counters of failed refreshes are laid out by themselves.
bool counts_failures(const optim::StateSpec& state) { return state.dtype == DType::int64; }

std::vector<optim::Role> roles_of(const ShardPlan& plan) {
    std::vector<optim::Role> roles;
    for (const MatrixShard& shard : plan.shards) roles.push_back(shard.role);
    return roles;
}

}  // namespace

std::vector<std::int64_t> matrix_numbers(const std::vector<optim::Role>& roles,
                                         const std::vector<std::vector<model::RowBlock>>& blocks) {
    MFSDP_ASSERT(roles.size() == blocks.size(), "roles and blocks are by parameter index");
    std::vector<std::int64_t> numbers;
    std::int64_t next = 0;
    for (std::size_t i = 0; i < roles.size(); ++i) {
        numbers.push_back(next);
        if (roles[i] == optim::Role::matrix) next += std::max<std::int64_t>(1, std::ssize(blocks[i]));
    }
    return numbers;
}

std::string matrix_name(const model::ModelSpec& spec, const std::vector<optim::Role>& roles,
                        const std::vector<std::vector<model::RowBlock>>& blocks, std::int64_t number) {
    const std::vector<std::int64_t> numbers = matrix_numbers(roles, blocks);
    for (std::size_t i = 0; i < roles.size(); ++i) {
        const std::int64_t index = number - numbers[i];
        if (roles[i] != optim::Role::matrix || index < 0) continue;
        const std::string& name = spec.parameters[i].name;
        if (blocks[i].empty() && index == 0) return name;
        if (index < std::ssize(blocks[i])) {
            return std::string(name).append("[").append(blocks[i][static_cast<std::size_t>(index)].name).append("]");
        }
    }
    MFSDP_ASSERT(false, "the model has a matrix of number " + std::to_string(number));
    return {};
}

OwnedOptimizer::OwnedOptimizer(const RankContext& context, const ParameterStore& weights,
                               const GradientStore& gradients, const OptimizerSetup& setup,
                               std::int64_t workspace_bytes)
    : context_(context),
      setup_(setup),
      gradients_(gradients),
      workspace_(context.device, context.ledger, device::MemoryCategory::workspace, workspace_bytes) {
    MFSDP_ASSERT(setup_.rates.size() == context.spec.parameters.size(), "rates are by parameter index");
    const std::vector<std::int64_t> numbers = matrix_numbers(roles_of(context.plan), setup_.blocks);
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
            owned.blocks = setup_.blocks[p];
            specs.push_back(setup_.matrix->states(spec.rows(), spec.columns(), owned.blocks));
        } else {
            specs.push_back(spec.shape.size() < 2 ? optim::adamw_states({spec.count()})
                                                  : optim::adamw_states({rows.row_count, spec.columns()}));
        }
        for (const optim::StateSpec& state : specs.back()) {
            if (counts_failures(state)) {
                failure_numbers_.push_back(numbers[p] + block_index(owned.blocks, state));
            } else {
                bytes += device::align_up(state.bytes());
            }
        }
        owned_.push_back(std::move(owned));
    }
    state_ = device::Buffer(context.device, context.ledger, device::MemoryCategory::state, bytes);
    failures_ = device::Buffer(context.device, context.ledger, device::MemoryCategory::state,
                               std::ssize(failure_numbers_) * device::size_of(DType::int64));
    std::int64_t offset = 0, failures_offset = 0;
    for (std::size_t i = 0; i < owned_.size(); ++i) {
        for (const optim::StateSpec& state : specs[i]) {
            const bool counter = counts_failures(state);
            owned_[i].states.push_back(counter ? state_view(failures_, state, failures_offset)
                                               : state_view(state_, state, offset));
            (counter ? failures_offset : offset) += counter ? state.bytes() : device::align_up(state.bytes());
            optim::start_state(context.compute, owned_[i].states.back(), state);
        }
    }
    if (setup_.matrix != nullptr) stepper_ = std::make_unique<optim::MatrixStepper>(*setup_.matrix);
    if (setup_.qk_clip.threshold > 0.0) find_clipped();
}

void OwnedOptimizer::find_clipped() {
    for (const Owned& owned : owned_) {
        const Tensor& weight = owned.rows.weight;
        // A bias is one row of a parameter and has as many elements as its weight has rows.
        const std::int64_t begin = weight.rank == 1 ? 0 : owned.rows.row_begin;
        const std::int64_t end = begin + weight.shape[0];
        for (const optim::HeadRows& heads : optim::head_rows(context_.spec, owned.rows.parameter)) {
            const std::int64_t first = std::max(begin, heads.row_begin);
            const std::int64_t last = std::min(end, heads.row_begin + heads.row_count);
            if (first >= last) continue;
            clipped_.push_back({weight.slice(0, first - begin, last - first), heads, first - heads.row_begin});
        }
    }
}

void OwnedOptimizer::clip_heads(const Tensor& logits) {
    for (const Clipped& clipped : clipped_) {
        const double alpha = setup_.qk_clip.alpha;
        device::launch(context_.compute,
                       device::QkClip{.weight = clipped.weight,
                                      .logits = logits.slice(0, clipped.heads.block, 1).reshape({logits.columns()}),
                                      .key_heads = context_.spec.config.num_key_value_heads,
                                      .rows_in_group = clipped.heads.rows_in_group,
                                      .row_begin = clipped.row_begin,
                                      .threshold = setup_.qk_clip.threshold,
                                      .exponent = clipped.heads.keys ? 1.0 - alpha : alpha});
    }
}

Tensor OwnedOptimizer::refresh_failures() const { return failures_.view(DType::int64, {std::ssize(failure_numbers_)}); }

std::string OwnedOptimizer::matrix_name(std::int64_t number) const {
    return runtime::matrix_name(context_.spec, roles_of(context_.plan), setup_.blocks, number);
}

std::vector<optim::RehearsalStep> OwnedOptimizer::rehearsal_steps() const {
    if (setup_.matrix == nullptr) return {{1, 1.0}};
    std::vector<std::int64_t> numbers;
    for (const Owned& owned : owned_) {
        if (owned.role != optim::Role::matrix) continue;
        const std::int64_t count = std::max<std::int64_t>(1, std::ssize(owned.blocks));
        for (std::int64_t i = 0; i < count; ++i) numbers.push_back(owned.matrix_number + i);
    }
    return setup_.matrix->rehearsal_steps(numbers);
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
    // All take their step in one call of each kind: matrices of one shape and those to be refreshed share it, and so do
    // the many small parameters.
    matrices_.clear();
    elements_.clear();
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
            elements_.push_back({.weight = owned.rows.weight,
                                 .gradient = gradient,
                                 .exp_avg = owned.states[0],
                                 .exp_avg_sq = owned.states[1],
                                 .gradient_scale = scale,
                                 .learning_rate = learning_rate,
                                 .weight_decay = rates.weight_decay,
                                 .step = step});
        }
    }
    optim::adamw_step(context_.compute, setup_.element, elements_);
    if (stepper_ != nullptr) stepper_->step(context_.compute, workspace_, matrices_);
}

}  // namespace mfsdp::runtime
