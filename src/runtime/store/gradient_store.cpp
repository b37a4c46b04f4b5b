#include "mfsdp/runtime/store/gradient_store.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/stopwatch.h"

#include "parameter_view.h"

#include <algorithm>
#include <utility>

namespace mfsdp::runtime {

namespace {

using device::DType;
using device::Tensor;

/// What decides a reduce schedule: whether sums exist already, and how many ranks bring a leaf.
struct Variant {
    bool accumulate = false;
    int contributors = 0;
    friend bool operator==(const Variant&, const Variant&) = default;
};

std::vector<Variant> variants_by_micro_step(std::int64_t micro_batches, int ranks) {
    std::vector<Variant> result;
    for (std::int64_t begin = 0; begin < micro_batches; begin += ranks) {
        result.push_back({begin > 0, static_cast<int>(std::min<std::int64_t>(ranks, micro_batches - begin))});
    }
    return result;
}

std::int64_t accumulator_bytes(const RankContext& context, const ParameterStore& weights) {
    std::int64_t elements = 0;
    for (std::size_t group = 0; group < context.plan.groups.size(); ++group) {
        elements += weights.layout(static_cast<std::int64_t>(group)).gradient_elements(context.rank) *
                    static_cast<std::int64_t>(context.plan.groups[group].users.size());
    }
    return elements * kFloatBytes;
}

}  // namespace

GradientStore::GradientStore(const RankContext& context, const ParameterStore& weights, std::int64_t micro_batches,
                             const StoreOptions& options, std::int64_t leaf_bytes)
    : context_(context),
      dtype_(options.grad_dtype),
      accumulators_(context.device, context.ledger, device::MemoryCategory::gradients,
                    accumulator_bytes(context, weights)),
      pool_(context.device, context.ledger, device::MemoryCategory::gradient_buffers, leaf_bytes) {
    const std::vector<Variant> by_step = variants_by_micro_step(micro_batches, context.plan.ranks);
    std::vector<Variant> distinct;
    for (const Variant& variant : by_step) {
        const auto found = std::find(distinct.begin(), distinct.end(), variant);
        variant_of_micro_step_.push_back(static_cast<std::size_t>(found - distinct.begin()));
        if (found == distinct.end()) distinct.push_back(variant);
    }
    std::int64_t offset = 0;
    std::int64_t scratch_bytes = 0;
    for (std::size_t g = 0; g < context.plan.groups.size(); ++g) {
        const GroupLayout& layout = weights.layout(static_cast<std::int64_t>(g));
        Group group;
        group.elements = layout.leaf_elements();
        group.accumulator_elements = layout.gradient_elements(context.rank);
        group.accumulator_offset = offset;
        offset += group.accumulator_elements * static_cast<std::int64_t>(context.plan.groups[g].users.size());
        for (const Variant& variant : distinct) {
            group.variants.push_back(comm::build_sum(options.reduce,
                                                     layout.reduce(dtype_, variant.contributors, variant.accumulate),
                                                     context.rank, options.build));
            scratch_bytes = std::max(scratch_bytes, group.variants.back().scratch_bytes);
        }
        for (std::size_t slot = 0; slot < context.plan.groups[g].slots.size(); ++slot) {
            group.leaf_offsets.push_back(layout.leaf_offset(static_cast<std::int64_t>(slot)));
        }
        groups_.push_back(std::move(group));
    }
    scratch_ = device::Buffer(context.device, context.ledger, device::MemoryCategory::transfer, scratch_bytes);
    // A step allocates nothing: what grows in it has its size from here on. A visit writes two groups at most.
    std::size_t parameters = 0;
    for (const model::UnitSpec& unit : context.spec.units) parameters = std::max(parameters, unit.parameters.size());
    bound_.reserve(parameters);
    in_flight_.reserve(kLeavesInFlight + 2);
}

std::int64_t GradientStore::use_of(std::int64_t group, std::int64_t unit) const {
    const std::vector<std::int64_t>& users = context_.plan.groups[index(group)].users;
    return std::find(users.begin(), users.end(), unit) - users.begin();
}

void GradientStore::retire_oldest() {
    const InFlight oldest = in_flight_.front();
    in_flight_.erase(in_flight_.begin());
    {
        const base::Stopwatch watch(exposed_seconds_);
        context_.compute.wait(oldest.done);
    }
    pool_.release(oldest.block, oldest.done);
}

std::span<const Tensor> GradientStore::begin_leaf(const Visit& visit) {
    std::size_t begun = 0;
    bound_.assign(context_.spec.units[index(visit.work.unit)].parameters.size(), Tensor{});
    for (const std::int64_t g : visit.writes) {
        Group& group = groups_[index(g)];
        MFSDP_ASSERT(!group.has_leaf, "a leaf is reduced before the next one is begun");
        while (in_flight_.size() + begun >= kLeavesInFlight && !in_flight_.empty()) retire_oldest();
        group.leaf = pool_.allocate(group.elements * device::size_of(dtype_), context_.compute);
        group.has_leaf = true;
        ++begun;
        bind_leaf(g, visit.work.unit);
    }
    return bound_;
}

void GradientStore::bind_leaf(std::int64_t g, std::int64_t unit) {
    const std::vector<std::int64_t>& parameters = context_.spec.units[index(unit)].parameters;
    const std::vector<GroupSlot>& slots = context_.plan.groups[index(g)].slots;
    const Group& group = groups_[index(g)];
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        if (group.leaf_offsets[slot] < 0) continue;
        const auto found = std::find(parameters.begin(), parameters.end(), slots[slot].parameter);
        std::byte* const address = group.leaf.data + group.leaf_offsets[slot] * device::size_of(dtype_);
        bound_[index(found - parameters.begin())] = as_parameter(context_.spec.parameters[index(slots[slot].parameter)],
                                                                 address, dtype_, slots[slot].row_count);
    }
}

void GradientStore::reduce(const Visit& visit) {
    for (const std::int64_t g : visit.writes) {
        Group& group = groups_[index(g)];
        const comm::TransferSchedule& schedule = group.variants[variant_of_micro_step_[index(visit.micro_step)]];
        comm::TransferBuffers memory;
        memory[comm::BufferRole::gradient] = group.has_leaf ? group.leaf.data : nullptr;
        if (accumulators_.bytes() > 0) {
            memory[comm::BufferRole::accumulator] =
                accumulators_.data() +
                (group.accumulator_offset + use_of(g, visit.work.unit) * group.accumulator_elements) * kFloatBytes;
        }
        memory[comm::BufferRole::scratch] = scratch_.data();
        // Started on every rank, also where it is empty: schedules of a lane are numbered alike on all ranks.
        last_transfer_ = context_.executor.start(schedule, comm::Lane::reduce, memory, context_.compute.record());
        if (group.has_leaf) in_flight_.push_back({group.leaf, last_transfer_});
        group.has_leaf = false;
    }
}

void GradientStore::finish() {
    while (!in_flight_.empty()) retire_oldest();
    {
        const base::Stopwatch watch(exposed_seconds_);
        context_.compute.wait(last_transfer_);
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        const Group& group = groups_[g];
        const auto uses = static_cast<std::int64_t>(context_.plan.groups[g].users.size());
        if (group.accumulator_elements == 0) continue;
        const auto sum_of_use = [&](std::int64_t use) {
            return accumulators_.view(DType::float32, {group.accumulator_elements},
                                      (group.accumulator_offset + use * group.accumulator_elements) * kFloatBytes);
        };
        for (std::int64_t use = 1; use < uses; ++use) {
            device::launch(context_.compute, device::Add{sum_of_use(0), sum_of_use(0), sum_of_use(use)});
        }
    }
}

Tensor GradientStore::gradient(const OwnedRows& rows) const {
    const model::ParameterSpec& spec = context_.spec.parameters[index(rows.parameter)];
    const std::int64_t offset = (groups_[index(rows.group)].accumulator_offset + rows.gradient_offset) * kFloatBytes;
    return as_parameter(spec, accumulators_.view(DType::float32, {rows.row_count * spec.columns()}, offset),
                        rows.row_count);
}

std::vector<const comm::TransferSchedule*> GradientStore::schedules() const {
    std::vector<const comm::TransferSchedule*> result;
    for (const Group& group : groups_) {
        for (const comm::TransferSchedule& schedule : group.variants) result.push_back(&schedule);
    }
    return result;
}

double GradientStore::take_exposed_seconds() { return std::exchange(exposed_seconds_, 0.0); }

}  // namespace mfsdp::runtime
