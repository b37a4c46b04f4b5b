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
                             const comm::BuildOptions& build, std::int64_t leaf_bytes)
    : context_(context),
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
        group.elements = layout.elements();
        group.accumulator_elements = layout.gradient_elements(context.rank);
        group.accumulator_offset = offset;
        offset += group.accumulator_elements * static_cast<std::int64_t>(context.plan.groups[g].users.size());
        for (const Variant& variant : distinct) {
            group.variants.push_back(
                comm::build_direct_sum(layout.reduce(variant.contributors, variant.accumulate), context.rank, build));
            scratch_bytes = std::max(scratch_bytes, group.variants.back().scratch_bytes);
        }
        std::vector<std::int64_t> offsets;
        for (std::size_t slot = 0; slot < context.plan.groups[g].parameters.size(); ++slot) {
            offsets.push_back(layout.full_offset(static_cast<std::int64_t>(slot)));
        }
        full_offsets_.push_back(std::move(offsets));
        groups_.push_back(std::move(group));
    }
    scratch_ = device::Buffer(context.device, context.ledger, device::MemoryCategory::transfer, scratch_bytes);
    // A step allocates nothing: what grows in it has its size from here on.
    std::size_t parameters = 0, groups = 0;
    for (const model::UnitSpec& unit : context.spec.units) parameters = std::max(parameters, unit.parameters.size());
    for (const std::vector<std::int64_t>& of_unit : context.plan.unit_groups) groups = std::max(groups, of_unit.size());
    bound_.reserve(parameters);
    in_flight_.reserve(kLeavesInFlight + groups);
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

std::span<const Tensor> GradientStore::begin_leaf(std::int64_t unit) {
    std::size_t begun = 0;
    for (const std::int64_t g : context_.plan.unit_groups[index(unit)]) {
        Group& group = groups_[index(g)];
        MFSDP_ASSERT(!group.has_leaf, "a leaf is reduced before the next one is begun");
        while (in_flight_.size() + begun >= kLeavesInFlight && !in_flight_.empty()) retire_oldest();
        group.leaf = pool_.allocate(group.elements * kFloatBytes, context_.compute);
        group.has_leaf = true;
        ++begun;
    }
    bound_.clear();
    for (const std::int64_t parameter : context_.spec.units[index(unit)].parameters) {
        const model::ParameterSpec& spec = context_.spec.parameters[index(parameter)];
        for (const std::int64_t g : context_.plan.unit_groups[index(unit)]) {
            const std::vector<std::int64_t>& members = context_.plan.groups[index(g)].parameters;
            const auto found = std::find(members.begin(), members.end(), parameter);
            if (found == members.end()) continue;
            std::byte* const address =
                groups_[index(g)].leaf.data + full_offsets_[index(g)][index(found - members.begin())] * kFloatBytes;
            bound_.push_back(as_parameter(spec, address));
        }
    }
    return bound_;
}

void GradientStore::reduce(std::int64_t unit, std::int64_t micro_step) {
    for (const std::int64_t g : context_.plan.unit_groups[index(unit)]) {
        Group& group = groups_[index(g)];
        const comm::TransferSchedule& schedule = group.variants[variant_of_micro_step_[index(micro_step)]];
        comm::TransferBuffers memory;
        memory[comm::BufferRole::gradient] = group.has_leaf ? group.leaf.data : nullptr;
        if (accumulators_.bytes() > 0) {
            memory[comm::BufferRole::accumulator] =
                accumulators_.data() +
                (group.accumulator_offset + use_of(g, unit) * group.accumulator_elements) * kFloatBytes;
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
