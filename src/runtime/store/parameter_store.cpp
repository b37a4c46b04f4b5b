#include "mfsdp/runtime/store/parameter_store.h"

#include "mfsdp/base/error.h"
#include "mfsdp/model/transformer.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace mfsdp::runtime {

namespace {

using device::DType;
using device::Tensor;

constexpr std::int64_t kFloatBytes = 4;

double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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

Tensor ParameterStore::parameter_view(std::int64_t parameter, std::byte* base, std::int64_t offset) const {
    const model::ParameterSpec& spec = context_.spec.parameters[index(parameter)];
    std::byte* const address = base == nullptr ? nullptr : base + offset * kFloatBytes;
    return spec.shape.size() < 2 ? Tensor::dense(address, DType::float32, {spec.count()})
                                 : Tensor::dense(address, DType::float32, {spec.rows(), spec.columns()});
}

Tensor ParameterStore::rows_view(std::int64_t parameter, std::int64_t offset, std::int64_t rows) const {
    const model::ParameterSpec& spec = context_.spec.parameters[index(parameter)];
    if (spec.shape.size() < 2) return weights_.view(DType::float32, {spec.count()}, offset * kFloatBytes);
    return weights_.view(DType::float32, {rows, spec.columns()}, offset * kFloatBytes);
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

void ParameterStore::initialise(std::uint64_t seed) {
    if (weights_.bytes() > 0) {
        // Padding travels with its parameter and must not be left undefined.
        device::launch(context_.compute,
                       device::Fill{weights_.view(DType::float32, {weights_.bytes() / kFloatBytes}), 0.0});
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        for (const LocalSegment& segment : groups_[g].layout.at_rest(context_.rank)) {
            const std::int64_t parameter = context_.plan.groups[g].parameters[index(segment.slot)];
            model::initialise(context_.compute, context_.spec.parameters[index(parameter)],
                              rows_view(parameter, groups_[g].at_rest_offset + segment.offset, segment.row_count),
                              segment.row_begin, seed);
        }
    }
}

void ParameterStore::load(std::int64_t parameter, std::span<const float> values) {
    const model::ParameterSpec& spec = context_.spec.parameters[index(parameter)];
    MFSDP_ASSERT(static_cast<std::int64_t>(values.size()) == spec.count(), "a whole parameter is given: " + spec.name);
    const Place place = places_[index(parameter)];
    const Group& group = groups_[index(place.group)];
    for (const LocalSegment& segment : group.layout.at_rest(context_.rank)) {
        if (segment.slot != place.slot || segment.row_count == 0) continue;
        device::launch(
            context_.compute,
            device::CopyFromHost{rows_view(parameter, group.at_rest_offset + segment.offset, segment.row_count),
                                 values.data() + segment.row_begin * spec.columns()});
    }
    context_.compute.synchronize();
}

void ParameterStore::collect(std::int64_t parameter, std::span<float> values) {
    const Place place = places_[index(parameter)];
    const Group& group = groups_[index(place.group)];
    const bool root = context_.rank == 0;
    const std::int64_t bytes = context_.spec.parameters[index(parameter)].count() * kFloatBytes;
    const device::Buffer whole(context_.device, context_.ledger, device::MemoryCategory::transfer, root ? bytes : 0);
    const comm::TransferSchedule schedule =
        comm::build_direct_gather(group.layout.collect(place.slot), context_.rank, options_.build);
    // Started on every rank, also where it is empty: schedules of a lane are numbered alike on all ranks.
    comm::TransferBuffers memory = buffers(group);
    memory[comm::BufferRole::gathered] = whole.data();
    last_transfer_ = context_.executor.start(schedule, comm::Lane::gather, memory, context_.compute.record());
    context_.compute.wait(last_transfer_);
    context_.compute.synchronize();
    if (root) {
        MFSDP_ASSERT(static_cast<std::int64_t>(values.size()) * kFloatBytes == bytes, "the whole parameter fits");
        device::launch(context_.compute, device::CopyToHost{values.data(), parameter_view(parameter, whole.data(), 0)});
        context_.compute.synchronize();
    }
}

std::vector<OwnedRows> ParameterStore::owned() const {
    std::vector<OwnedRows> result;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        const Group& group = groups_[g];
        const std::vector<LocalSegment> resting = group.layout.at_rest(context_.rank);
        for (const LocalSegment& stepped : group.layout.gradient(context_.rank)) {
            const auto rest = std::find_if(resting.begin(), resting.end(),
                                           [&](const LocalSegment& segment) { return segment.slot == stepped.slot; });
            MFSDP_ASSERT(rest != resting.end() && stepped.row_begin >= rest->row_begin &&
                             stepped.row_begin + stepped.row_count <= rest->row_begin + rest->row_count,
                         "rows are stepped where they rest");
            const std::int64_t parameter = context_.plan.groups[g].parameters[index(stepped.slot)];
            const std::int64_t columns = context_.spec.parameters[index(parameter)].columns();
            const std::int64_t offset =
                group.at_rest_offset + rest->offset + (stepped.row_begin - rest->row_begin) * columns;
            result.push_back({parameter, static_cast<std::int64_t>(g), stepped.row_begin, stepped.row_count,
                              rows_view(parameter, offset, stepped.row_count), stepped.offset});
        }
    }
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
            // Limited by planned bytes, never by free memory: every rank takes the same decision in the same place.
            if (options_.prefetch_bytes >= 0 && planned > options_.prefetch_bytes) return;
            start_gather(groups_[index(group)]);
        }
    }
}

void ParameterStore::bind(const Visit& visit) {
    bound_.clear();
    for (const std::int64_t parameter : context_.spec.units[index(visit.unit)].parameters) {
        const Place place = places_[index(parameter)];
        const Group& group = groups_[index(place.group)];
        const std::int64_t offset = group.gathered_offsets[index(place.slot)];
        if (visit.reads.empty()) {
            bound_.push_back(parameter_view(parameter, nullptr, 0));
        } else {
            bound_.push_back(offset < 0 ? group.resting[index(place.slot)]
                                        : parameter_view(parameter, group.block.data, offset));
        }
    }
}

Lease ParameterStore::materialize(std::int64_t visit) {
    const Visit& present = visits_[index(visit)];
    if (visit == 0) lane_->wait(context_.compute.record());  // the weights of this step are complete
    for (const std::int64_t group : present.reads) start_gather(groups_[index(group)]);
    prefetch(visit);
    const double begin = now_seconds();
    for (const std::int64_t group : present.reads) {
        context_.compute.wait(groups_[index(group)].published);
        context_.compute.wait(groups_[index(group)].ready);
    }
    exposed_seconds_ += now_seconds() - begin;
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
    const double begin = now_seconds();
    context_.compute.wait(last_transfer_);
    exposed_seconds_ += now_seconds() - begin;
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
