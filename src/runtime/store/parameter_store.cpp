#include "mfsdp/runtime/store/parameter_store.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/stopwatch.h"

#include "parameter_view.h"

#include <algorithm>
#include <utility>

namespace mfsdp::runtime {

namespace {

using device::Tensor;

/// Elements of this rank over all groups, `of` one of GroupLayout's counts.
std::int64_t total(const RankContext& context, std::int64_t (GroupLayout::*of)(int) const) {
    std::int64_t elements = 0;
    for (std::size_t group = 0; group < context.plan.groups.size(); ++group) {
        elements += (GroupLayout(context.spec, context.plan, static_cast<std::int64_t>(group)).*of)(context.rank);
    }
    return elements;
}

/// Whether any rank wants anything. Ranks agree on it, so that schedules of a lane are numbered alike on all of them.
bool moves_anything(const comm::Movement& movement) {
    return std::any_of(movement.to.pieces.begin(), movement.to.pieces.end(),
                       [](const std::vector<comm::Piece>& pieces) { return !pieces.empty(); });
}

}  // namespace

std::vector<GroupAlgorithms> choose_algorithms(const model::ModelSpec& spec, const ShardPlan& plan,
                                               const comm::Mesh& mesh, const StoreOptions& options) {
    std::vector<GroupAlgorithms> result;
    for (std::size_t group = 0; group < plan.groups.size(); ++group) {
        const GroupLayout layout(spec, plan, static_cast<std::int64_t>(group));
        const auto choose = [&](const comm::Movement& movement) {
            return comm::choose_gather(movement, options.gather, mesh, options.links, options.build);
        };
        result.push_back({choose(layout.gather(options.param_dtype)), choose(layout.publish(options.param_dtype))});
    }
    return result;
}

Lease::~Lease() {
    if (store_ != nullptr) store_->release(visit_);
}

std::span<const Tensor> Lease::weights() const { return store_->bound_; }

ParameterStore::ParameterStore(const RankContext& context, const StoreOptions& options, std::int64_t gathered_bytes)
    : context_(context),
      options_(options),
      weights_(context.device, context.ledger, device::MemoryCategory::weights,
               total(context, &GroupLayout::at_rest_elements) * device::size_of(options.param_dtype)),
      masters_(context.device, context.ledger, device::MemoryCategory::masters,
               has_masters() ? total(context, &GroupLayout::gradient_elements) * kFloatBytes : 0),
      pool_(context.device, context.ledger, device::MemoryCategory::gathered, gathered_bytes),
      lane_(context.device.make_stream()) {
    if (options_.algorithms.empty()) {
        options_.algorithms = choose_algorithms(context.spec, context.plan, context.mesh, options_);
    }
    groups_.reserve(context.plan.groups.size());
    for (std::size_t group = 0; group < context.plan.groups.size(); ++group)
        build_group(static_cast<std::int64_t>(group));
    even_out_blocks();
    list_owned();
    std::size_t most = 0;
    for (const model::UnitSpec& unit : context.spec.units) most = std::max(most, unit.parameters.size());
    bound_.reserve(most);
}

ParameterStore::~ParameterStore() = default;

void ParameterStore::build_group(std::int64_t index_of_group) {
    const std::int64_t begin =
        groups_.empty() ? 0 : groups_.back().at_rest_offset + groups_.back().layout.at_rest_elements(context_.rank);
    groups_.emplace_back(GroupLayout(context_.spec, context_.plan, index_of_group));
    Group& group = groups_.back();
    group.at_rest_offset = begin;
    const GroupAlgorithms& algorithms = options_.algorithms[index(index_of_group)];
    const comm::Movement gather = group.layout.gather(options_.param_dtype);
    group.gather = comm::build_gather(algorithms.gather, gather, context_.rank, options_.build);
    const comm::Movement publish = group.layout.publish(options_.param_dtype);
    group.publish = comm::build_gather(algorithms.publish, publish, context_.rank, options_.build);
    group.gathers = moves_anything(gather);
    group.publishes = moves_anything(publish);
    MFSDP_ASSERT(group.gather.scratch_bytes == 0 && group.publish.scratch_bytes == 0, "gathers need no scratch");
    group.gathered_offsets = group.layout.gathered_offsets(context_.rank);
    group.gathered_bytes = group.layout.gathered_elements(context_.rank) * value_bytes();
    for (int rank = 0; rank < context_.plan.ranks; ++rank) {
        group.most_gathered_bytes =
            std::max(group.most_gathered_bytes, group.layout.gathered_elements(rank) * value_bytes());
    }

    const std::vector<GroupSlot>& slots = context_.plan.groups[index(index_of_group)].slots;
    group.resting.resize(slots.size());
    for (const LocalSegment& segment : group.layout.at_rest(context_.rank)) {
        const GroupSlot& slot = slots[index(segment.slot)];
        if (segment.row_count == slot.row_count) {
            group.resting[index(segment.slot)] =
                rows_view(slot.parameter, group.at_rest_offset + segment.offset, segment.row_count);
        }
    }
}

void ParameterStore::even_out_blocks() {
    // What a rank need not gather differs from block to block, by what it owns. Blocks of one size leave no holes in
    // the pool when they take turns; what is smaller takes as much, so that a block fits where it was. The panels of a
    // table likewise.
    const auto kind = [&](std::size_t g) {
        const std::int64_t unit = context_.plan.groups[g].users.front();
        const bool is_block = unit > 0 && unit < context_.spec.head_unit();
        return is_block ? std::int64_t{-1} : context_.plan.groups[g].slots.front().parameter;
    };
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        std::int64_t largest = 0;
        for (std::size_t other = 0; other < groups_.size(); ++other) {
            if (kind(other) == kind(g)) largest = std::max(largest, groups_[other].gathered_bytes);
        }
        groups_[g].pooled_bytes = groups_[g].gathered_bytes > 0 ? largest : 0;
    }
}

Tensor ParameterStore::rows_view(std::int64_t parameter, std::int64_t offset, std::int64_t rows) const {
    const model::ParameterSpec& spec = context_.spec.parameters[index(parameter)];
    return as_parameter(spec, weights_.view(options_.param_dtype, {rows * spec.columns()}, offset * value_bytes()),
                        rows);
}

comm::TransferBuffers ParameterStore::buffers(const Group& group) const {
    comm::TransferBuffers result;
    if (weights_.bytes() > 0) result[comm::BufferRole::shard] = weights_.data() + group.at_rest_offset * value_bytes();
    result[comm::BufferRole::gathered] = group.block.data;
    return result;
}

std::vector<const comm::TransferSchedule*> ParameterStore::gather_schedules() const {
    std::vector<const comm::TransferSchedule*> result;
    for (const Group& group : groups_) result.push_back(&group.gather);
    return result;
}

std::vector<const comm::TransferSchedule*> ParameterStore::publish_schedules() const {
    std::vector<const comm::TransferSchedule*> result;
    for (const Group& group : groups_) result.push_back(&group.publish);
    return result;
}

std::vector<const comm::TransferSchedule*> ParameterStore::schedules() const {
    std::vector<const comm::TransferSchedule*> result = gather_schedules();
    for (const Group& group : groups_) result.push_back(&group.publish);
    return result;
}

void ParameterStore::start_gather(Group& group) {
    if (group.state != State::sharded) return;
    group.block = pool_.allocate(group.pooled_bytes, *lane_);
    group.state = State::in_pool;
    gathered_bytes_ += group.gathered_bytes;
    peak_gathered_bytes_ = std::max(peak_gathered_bytes_, gathered_bytes_);
    group.ready = {};
    if (!group.gathers) return;
    group.ready = context_.executor.start(group.gather, comm::Lane::gather, buffers(group), lane_->record());
    last_transfer_ = group.ready;
}

void ParameterStore::prefetch(std::int64_t visit) {
    std::int64_t planned = 0;
    const auto end =
        std::min<std::int64_t>(visit + options_.prefetch_units, static_cast<std::int64_t>(visits_->size()) - 1);
    for (std::int64_t ahead = visit + 1; ahead <= end; ++ahead) {
        for (const std::int64_t group : (*visits_)[index(ahead)].reads) {
            // Limited by planned bytes, never by free memory, so that every step does the same; by those of the rank
            // that gathers most, so that all ranks stop at one place and start the transfers of both lanes in one
            // order.
            planned += groups_[index(group)].most_gathered_bytes;
            if (options_.prefetch_bytes >= 0 && planned > options_.prefetch_bytes) return;
            start_gather(groups_[index(group)]);
        }
    }
}

void ParameterStore::bind_group(std::int64_t g, std::int64_t unit) {
    const std::vector<std::int64_t>& parameters = context_.spec.units[index(unit)].parameters;
    const std::vector<GroupSlot>& slots = context_.plan.groups[index(g)].slots;
    const Group& group = groups_[index(g)];
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        const auto found = std::find(parameters.begin(), parameters.end(), slots[slot].parameter);
        MFSDP_ASSERT(found != parameters.end(), "a unit's groups hold its parameters");
        const std::int64_t offset = group.gathered_offsets[slot];
        const model::ParameterSpec& spec = context_.spec.parameters[index(slots[slot].parameter)];
        bound_[index(found - parameters.begin())] = offset < 0
                                                        ? group.resting[slot]
                                                        : as_parameter(spec, group.block.data + offset * value_bytes(),
                                                                       options_.param_dtype, slots[slot].row_count);
    }
}

void ParameterStore::bind(const Visit& visit) {
    bound_.assign(context_.spec.units[index(visit.work.unit)].parameters.size(), Tensor{});
    for (const std::int64_t group : visit.reads) bind_group(group, visit.work.unit);
}

void ParameterStore::begin(const std::vector<Visit>& sequence) {
    visits_ = &sequence;
    lane_->wait(context_.compute.record());  // the weights that the sequence reads are complete
}

Lease ParameterStore::materialize(std::int64_t visit) {
    const Visit& present = (*visits_)[index(visit)];
    for (const std::int64_t group : present.reads) start_gather(groups_[index(group)]);
    prefetch(visit);
    {
        const base::Stopwatch watch(exposed_seconds_);
        for (const std::int64_t group : present.reads) {
            context_.compute.wait(groups_[index(group)].published);
            context_.compute.wait(groups_[index(group)].ready);
        }
    }
    bind(present);
    return Lease(*this, visit);
}

void ParameterStore::release(std::int64_t visit) noexcept {
    const Visit& present = (*visits_)[index(visit)];
    for (std::size_t i = 0; i < present.reads.size(); ++i) {
        Group& group = groups_[index(present.reads[i])];
        const std::int64_t next = present.next_read[i];
        const bool until_backward = !options_.reshard_after_forward && next != Visit::kNever &&
                                    present.work.phase != model::Phase::backward &&
                                    (*visits_)[index(next)].work.phase == model::Phase::backward;
        if (next != Visit::kNever && (until_backward || next - visit <= options_.prefetch_units)) continue;
        pool_.release(group.block, context_.compute.record());
        gathered_bytes_ -= group.gathered_bytes;
        group.state = State::sharded;
    }
}

void ParameterStore::quiesce() {
    const base::Stopwatch watch(exposed_seconds_);
    context_.compute.wait(last_transfer_);
}

void ParameterStore::publish() {
    if (has_masters()) {
        for (const OwnedRows& rows : owned_) {
            device::launch(context_.compute, device::Copy{.out = rows.resting, .in = rows.weight});
        }
    }
    for (Group& group : groups_) {
        if (!group.publishes) continue;
        group.published =
            context_.executor.start(group.publish, comm::Lane::gather, buffers(group), context_.compute.record());
        last_transfer_ = group.published;
    }
}

double ParameterStore::take_exposed_seconds() { return std::exchange(exposed_seconds_, 0.0); }

}  // namespace mfsdp::runtime
