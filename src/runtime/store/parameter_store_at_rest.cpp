#include "mfsdp/base/error.h"
#include "mfsdp/model/transformer.h"
#include "mfsdp/runtime/store/parameter_store.h"

#include "parameter_view.h"

#include <algorithm>

// What ParameterStore does with weights at rest, between steps; parameter_store.cpp has what it does in a step.

namespace mfsdp::runtime {

void ParameterStore::initialise(std::uint64_t seed) {
    if (weights_.bytes() > 0) {
        // Padding travels with its parameter and must not be left undefined.
        device::launch(context_.compute,
                       device::Fill{weights_.view(device::DType::float32, {weights_.bytes() / kFloatBytes}), 0.0});
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
    const model::ParameterSpec& spec = context_.spec.parameters[index(parameter)];
    const std::int64_t bytes = spec.count() * kFloatBytes;
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
        device::launch(context_.compute, device::CopyToHost{values.data(), as_parameter(spec, whole.data())});
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

}  // namespace mfsdp::runtime
