#include "optim/factored_optimizer.h"

namespace mfsdp::optim {

namespace {

using device::DType;
using device::Tensor;

constexpr std::int64_t kStatusBytes = device::size_of(DType::int64);

/// Bytes of scratch that the tasks of one launch take together, unless a single block takes more: with staggered
/// refreshes the matrices due in a step usually fit, and where all are due at once they take turns.
constexpr std::int64_t kBatchBytes = std::int64_t{1} << 29;

}  // namespace

RefreshBatch::RefreshBatch(device::Stream& stream, device::BufferPool& workspace)
    : statuses_(workspace, stream, device::kMaxTasks * kStatusBytes) {}

void RefreshBatch::add(const BlockWork& block, const Sides& sides, const SideStates& states) {
    parts_[part_count_++] = {.block = &block, .first = task_count_, .count = sides.count()};
    for (std::size_t i = 0; i < sides.count(); ++i) {
        tasks_[task_count_] = {.size = sides.all()[i].size,
                               .factor = states.factors[i],
                               .result = states.results[i],
                               .status = statuses(task_count_, 1)};
        ++task_count_;
    }
}

Tensor RefreshBatch::statuses(std::size_t first, std::size_t count) const {
    return statuses_.view(DType::int64, {static_cast<std::int64_t>(count)},
                          static_cast<std::int64_t>(first) * kStatusBytes);
}

device::PooledBuffer take_floats(device::Stream& stream, device::BufferPool& workspace, std::int64_t floats) {
    return {workspace, stream, floats * device::size_of(DType::float32)};
}

std::vector<RehearsalStep> FactoredOptimizer::rehearsal_steps(std::span<const std::int64_t> numbers) const {
    std::vector<std::int64_t> shifts;
    for (const std::int64_t number : numbers) shifts.push_back(turns_.shift_of(number));
    std::vector<RehearsalStep> steps = refresh_period(turns_.start, turns_.frequency, shifts);
    steps.push_back({1, 0.0});
    if (turns_.start > 1) steps.push_back({turns_.start, 0.0});
    return steps;
}

void FactoredOptimizer::refresh(device::Stream& stream, device::BufferPool& workspace,
                                std::span<const BlockWork> blocks, std::int64_t step) {
    std::array<const BlockWork*, device::kMaxTasks> together{};
    std::size_t count = 0;
    std::int64_t tasks = 0, bytes = 0;
    const auto flush = [&] {
        if (count > 0)
            refresh_together(stream, workspace, std::span<const BlockWork* const>(together).first(count), step);
        count = 0;
        tasks = bytes = 0;
    };
    for (const BlockWork& block : blocks) {
        const Sides sides = sides_of(block.rows, block.columns);
        if (sides.count() == 0 || !turns_.due(step, block.number)) continue;
        std::int64_t wanted = 0;
        for (const Side& side : sides.all()) wanted += task_bytes(side.size, step);
        const auto more = static_cast<std::int64_t>(sides.count());
        if (count > 0 && (tasks + more > device::kMaxTasks || bytes + wanted > kBatchBytes)) flush();
        together[count++] = &block;
        tasks += more;
        bytes += wanted;
    }
    flush();
}

void FactoredOptimizer::refresh_together(device::Stream& stream, device::BufferPool& workspace,
                                         std::span<const BlockWork* const> blocks, std::int64_t step) {
    RefreshBatch batch(stream, workspace);
    for (const BlockWork* block : blocks) {
        const Sides sides = sides_of(block->rows, block->columns);
        batch.add(*block, sides, side_states(*block, sides));
    }
    renew(stream, workspace, batch, step);
    for (const RefreshBatch::Part& part : batch.parts()) {
        const Sides sides = sides_of(part.block->rows, part.block->columns);
        device::launch(stream, device::CountFailures{.failures = side_states(*part.block, sides).failures,
                                                     .statuses = batch.statuses(part.first, part.count)});
    }
}

void FactoredOptimizer::add_side_states(std::vector<StateSpec>& states, const Sides& sides) const {
    const auto add = [&](const std::string& what, StateStart start) {
        for (const Side& side : sides.all()) {
            states.push_back({.name = std::string(side.left ? "left_" : "right_").append(what),
                              .shape = {side.size, side.size},
                              .element = false,
                              .start = start});
        }
    };
    add("factor", StateStart::zeros);
    add(result_, StateStart::identity);
    if (sides.count() > 0) {
        states.push_back({.name = "refresh_failures", .shape = {}, .element = false, .dtype = DType::int64});
    }
}

SideStates FactoredOptimizer::side_states(const BlockWork& block, const Sides& sides) const {
    const std::span<const Tensor> states = block.states.subspan(before_);
    SideStates result{.factors = states.first(sides.count()), .results = states.subspan(sides.count(), sides.count())};
    if (sides.count() > 0) result.failures = states[2 * sides.count()];
    return result;
}

void FactoredOptimizer::take_into_factors(device::Stream& stream, const BlockWork& block, double alpha,
                                          double beta) const {
    const Sides sides = sides_of(block.rows, block.columns);
    const SideStates states = side_states(block, sides);
    for (std::size_t i = 0; i < sides.count(); ++i) {
        device::launch(stream, device::SymmetricProduct{.out = states.factors[i],
                                                        .a = block.input,
                                                        .transpose = !sides.all()[i].left,
                                                        .alpha = static_cast<float>(alpha),
                                                        .beta = static_cast<float>(beta)});
    }
}

}  // namespace mfsdp::optim
