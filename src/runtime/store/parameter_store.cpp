#include "mfsdp/runtime/store/parameter_store.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/stopwatch.h"

#include "parameter_view.h"

#include <algorithm>
#include <utility>

namespace mfsdp::runtime {

namespace {

using device::DType;
using device::Tensor;

std::int64_t total_at_rest(const RankContext& context) {
    std::int64_t elements = 0;
    for (std::size_t group = 0; group < context.plan.groups.size(); ++group) {
        elements +=
            GroupLayout(context.spec, context.plan, static_cast<std::int64_t>(group)).at_rest_elements(context.rank);
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
        result.push_back({choose(layout.gather()), choose(layout.publish())});
    }
    return result;
}

Lease::~Lease() {
    if (store_ != nullptr) store_->release(visit_);
}

std::span<const Tensor> Lease::weights() const { return store_->bound_; }

ParameterStore::ParameterStore(const RankContext& context, const StoreOptions& options, std::int64_t micro_steps,
                               std::int64_t gathered_bytes)
    : context_(context),
      options_(options),
      visits_(visit_sequence(context.spec, context.plan, micro_steps)),
      places_(context.spec.parameters.size()),
      weights_(context.device, context.ledger, device::MemoryCategory::weights, total_at_rest(context) * kFloatBytes),
      pool_(context.device, context.ledger, device::MemoryCategory::gathered, gathered_bytes),
      lane_(context.device.make_stream()) {
    if (options_.algorithms.empty()) {
        options_.algorithms = choose_algorithms(context.spec, context.plan, context.mesh, options_);
    }
    groups_.reserve(context.plan.groups.size());
    for (std::size_t group = 0; group < context.plan.groups.size(); ++group)
        build_group(static_cast<std::int64_t>(group));
    even_out_blocks();
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
    const comm::Movement gather = group.layout.gather();
    group.gather = comm::build_gather(algorithms.gather, gather, context_.rank, options_.build);
    const comm::Movement publish = group.layout.publish();
    group.publish = comm::build_gather(algorithms.publish, publish, context_.rank, options_.build);
    group.gathers = moves_anything(gather);
    group.publishes = moves_anything(publish);
    MFSDP_ASSERT(group.gather.scratch_bytes == 0 && group.publish.scratch_bytes == 0, "gathers need no scratch");
    group.gathered_offsets = group.layout.gathered_offsets(context_.rank);
    group.gathered_bytes = group.layout.gathered_elements(context_.rank) * kFloatBytes;

    const std::vector<std::int64_t>& parameters = context_.plan.groups[index(index_of_group)].parameters;
    group.resting.resize(parameters.size());
    for (const LocalSegment& segment : group.layout.at_rest(context_.rank)) {
        const std::int64_t parameter = parameters[index(segment.slot)];
        if (segment.row_count == context_.spec.parameters[index(parameter)].rows()) {
            group.resting[index(segment.slot)] =
                rows_view(parameter, group.at_rest_offset + segment.offset, segment.row_count);
        }
    }
    for (std::size_t slot = 0; slot < parameters.size(); ++slot) {
        places_[index(parameters[slot])] = {index_of_group, static_cast<std::int64_t>(slot)};
    }
}

void ParameterStore::even_out_blocks() {
    // What a rank need not gather differs from block to block, by what it owns. Blocks of one size leave no holes in
    // the pool when they take turns; what is smaller takes as much, so that a block fits where it was.
    const auto is_block = [&](std::size_t g) {
        const std::vector<std::int64_t>& users = context_.plan.groups[g].users;
        return users.size() == 1 && users[0] > 0 && users[0] < context_.spec.head_unit();
    };
    std::int64_t largest = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        if (is_block(g)) largest = std::max(largest, groups_[g].gathered_bytes);
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        const std::int64_t bytes = groups_[g].gathered_bytes;
        groups_[g].pooled_bytes = bytes > 0 ? std::max(largest, bytes) : 0;
    }
}

Tensor ParameterStore::rows_view(std::int64_t parameter, std::int64_t offset, std::int64_t rows) const {
    const model::ParameterSpec& spec = context_.spec.parameters[index(parameter)];
    return as_parameter(spec, weights_.view(DType::float32, {rows * spec.columns()}, offset * kFloatBytes), rows);
}

comm::TransferBuffers ParameterStore::buffers(const Group& group) const {
    comm::TransferBuffers result;
    if (weights_.bytes() > 0) result[comm::BufferRole::shard] = weights_.data() + group.at_rest_offset * kFloatBytes;
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
        std::min<std::int64_t>(visit + options_.prefetch_units, static_cast<std::int64_t>(visits_.size()) - 1);
    for (std::int64_t ahead = visit + 1; ahead <= end; ++ahead) {
        for (const std::int64_t group : visits_[index(ahead)].reads) {
            planned += groups_[index(group)].gathered_bytes;
            // Limited by planned bytes, never by free memory, so that every step does the same. What a rank need not
            // gather differs between ranks, and so may the place where they stop: gathers still start in the order of
            // the visits on all of them.
            if (options_.prefetch_bytes >= 0 && planned > options_.prefetch_bytes) return;
            start_gather(groups_[index(group)]);
        }
    }
}

void ParameterStore::bind(const Visit& visit) {
    bound_.clear();
    for (const std::int64_t parameter : context_.spec.units[index(visit.unit)].parameters) {
        const model::ParameterSpec& spec = context_.spec.parameters[index(parameter)];
        const Place place = places_[index(parameter)];
        const Group& group = groups_[index(place.group)];
        const std::int64_t offset = group.gathered_offsets[index(place.slot)];
        if (visit.reads.empty()) {
            bound_.push_back(as_parameter(spec, nullptr));
        } else if (offset < 0) {
            bound_.push_back(group.resting[index(place.slot)]);
        } else {
            bound_.push_back(as_parameter(spec, group.block.data + offset * kFloatBytes));
        }
    }
}

Lease ParameterStore::materialize(std::int64_t visit) {
    const Visit& present = visits_[index(visit)];
    if (visit == 0) lane_->wait(context_.compute.record());  // the weights of this step are complete
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
    const Visit& present = visits_[index(visit)];
    for (std::size_t i = 0; i < present.reads.size(); ++i) {
        Group& group = groups_[index(present.reads[i])];
        const bool until_backward = !options_.reshard_after_forward && !present.backward;
        if (present.next_read[i] != Visit::kNever &&
            (until_backward || present.next_read[i] - visit <= options_.prefetch_units)) {
            continue;
        }
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
    for (Group& group : groups_) {
        if (!group.publishes) continue;
        group.published =
            context_.executor.start(group.publish, comm::Lane::gather, buffers(group), context_.compute.record());
        last_transfer_ = group.published;
    }
}

double ParameterStore::take_exposed_seconds() { return std::exchange(exposed_seconds_, 0.0); }

}  // namespace mfsdp::runtime
