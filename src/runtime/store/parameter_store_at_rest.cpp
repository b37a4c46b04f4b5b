#include "mfsdp/base/error.h"
#include "mfsdp/model/transformer.h"
#include "mfsdp/runtime/store/parameter_store.h"

#include "parameter_view.h"

#include <algorithm>

// What ParameterStore does with weights at rest, between steps; parameter_store.cpp has what it does in a step.

namespace mfsdp::runtime {

using device::Tensor;

void ParameterStore::initialise(std::uint64_t seed) {
    // Padding travels with its parameter and must not be left undefined.
    for (const auto& [buffer, dtype] :
         {std::pair(&weights_, options_.param_dtype), std::pair(&masters_, device::DType::float32)}) {
        if (buffer->bytes() == 0) continue;
        device::launch(context_.compute,
                       device::Fill{buffer->view(dtype, {buffer->bytes() / device::size_of(dtype)}), 0.0});
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        for (const LocalSegment& segment : groups_[g].layout.at_rest(context_.rank)) {
            const std::int64_t parameter = context_.plan.groups[g].slots[index(segment.slot)].parameter;
            model::initialise(context_.compute, context_.spec.parameters[index(parameter)],
                              rows_view(parameter, groups_[g].at_rest_offset + segment.offset, segment.row_count),
                              segment.row_begin, seed);
        }
    }
    if (!has_masters()) return;
    for (const OwnedRows& rows : owned_) {
        model::initialise(context_.compute, context_.spec.parameters[index(rows.parameter)], rows.weight,
                          rows.row_begin, seed);
    }
}

void ParameterStore::load(const ReadRows& read) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        for (const LocalSegment& segment : groups_[g].layout.at_rest(context_.rank)) {
            const std::int64_t parameter = context_.plan.groups[g].slots[index(segment.slot)].parameter;
            load_rows(read, parameter, segment.row_begin,
                      rows_view(parameter, groups_[g].at_rest_offset + segment.offset, segment.row_count));
        }
    }
}

void ParameterStore::load_rows(const ReadRows& read, std::int64_t parameter, std::int64_t row_begin,
                               const Tensor& resting) {
    constexpr std::int64_t kStagingElements = std::int64_t{4} << 20;
    const model::ParameterSpec& spec = context_.spec.parameters[index(parameter)];
    const auto rows_of = [&](const Tensor& tensor, std::int64_t begin, std::int64_t count) {
        return spec.shape.size() < 2 ? tensor : tensor.slice(0, begin, count);
    };
    const std::int64_t rows = resting.count() / spec.columns();
    const std::int64_t step = std::max<std::int64_t>(1, kStagingElements / spec.columns());
    std::vector<float> values;
    for (std::int64_t done = 0; done < rows; done += step) {
        const std::int64_t begin = row_begin + done, count = std::min(step, rows - done);
        values.resize(index(count * spec.columns()));
        read(parameter, begin, count, values);
        const device::Buffer staging(context_.device, context_.ledger, device::MemoryCategory::transfer,
                                     count * spec.columns() * kFloatBytes);
        const Tensor staged = as_parameter(spec, staging.data(), device::DType::float32, count);
        device::launch(context_.compute, device::CopyFromHost{staged, values.data()});
        device::launch(context_.compute, device::Copy{.out = rows_of(resting, done, count), .in = staged});
        // Rows are stepped where they rest, so the masters are among what was read.
        for (const OwnedRows& owned : owned_) {
            const std::int64_t first = std::max(begin, owned.row_begin);
            const std::int64_t end = std::min(begin + count, owned.row_begin + owned.row_count);
            if (!has_masters() || owned.parameter != parameter || first >= end) continue;
            device::launch(context_.compute,
                           device::Copy{.out = rows_of(owned.weight, first - owned.row_begin, end - first),
                                        .in = rows_of(staged, first - begin, end - first)});
        }
        context_.compute.synchronize();
    }
}

void ParameterStore::collect(std::int64_t parameter, std::span<float> values) {
    const model::ParameterSpec& spec = context_.spec.parameters[index(parameter)];
    MFSDP_ASSERT(context_.rank != 0 || static_cast<std::int64_t>(values.size()) == spec.count(),
                 "the whole parameter fits: " + spec.name);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        const std::vector<GroupSlot>& slots = context_.plan.groups[g].slots;
        for (std::size_t slot = 0; slot < slots.size(); ++slot) {
            if (slots[slot].parameter != parameter) continue;
            const std::span<float> part = values.empty()
                                              ? values
                                              : values.subspan(index(slots[slot].row_begin * spec.columns()),
                                                               index(slots[slot].row_count * spec.columns()));
            collect_slot(static_cast<std::int64_t>(g), static_cast<std::int64_t>(slot), part);
        }
    }
}

void ParameterStore::collect_slot(std::int64_t g, std::int64_t slot, std::span<float> values) {
    const Group& group = groups_[index(g)];
    const bool root = context_.rank == 0;
    const auto count = static_cast<std::int64_t>(values.size());
    const auto buffer = [&](std::int64_t element_bytes) {
        return device::Buffer(context_.device, context_.ledger, device::MemoryCategory::transfer,
                              root ? count * element_bytes : 0);
    };
    const device::Buffer whole = buffer(value_bytes());
    const comm::TransferSchedule schedule =
        comm::build_direct_gather(group.layout.collect(options_.param_dtype, slot), context_.rank, options_.build);
    // Started on every rank, also where it is empty: schedules of a lane are numbered alike on all ranks.
    comm::TransferBuffers memory = buffers(group);
    memory[comm::BufferRole::gathered] = whole.data();
    last_transfer_ = context_.executor.start(schedule, comm::Lane::gather, memory, context_.compute.record());
    context_.compute.wait(last_transfer_);
    context_.compute.synchronize();
    if (!root) return;
    const device::Buffer widened = buffer(kFloatBytes);
    const Tensor out = widened.view(device::DType::float32, {count});
    device::launch(context_.compute, device::Copy{.out = out, .in = whole.view(options_.param_dtype, {count})});
    device::launch(context_.compute, device::CopyToHost{values.data(), out});
    context_.compute.synchronize();
}

void ParameterStore::list_owned() {
    std::int64_t master_offset = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
        const Group& group = groups_[g];
        const std::vector<LocalSegment> resting = group.layout.at_rest(context_.rank);
        for (const LocalSegment& stepped : group.layout.gradient(context_.rank)) {
            const auto rest = std::find_if(resting.begin(), resting.end(),
                                           [&](const LocalSegment& segment) { return segment.slot == stepped.slot; });
            MFSDP_ASSERT(rest != resting.end() && stepped.row_begin >= rest->row_begin &&
                             stepped.row_begin + stepped.row_count <= rest->row_begin + rest->row_count,
                         "rows are stepped where they rest");
            const std::int64_t parameter = context_.plan.groups[g].slots[index(stepped.slot)].parameter;
            const model::ParameterSpec& spec = context_.spec.parameters[index(parameter)];
            const std::int64_t offset =
                group.at_rest_offset + rest->offset + (stepped.row_begin - rest->row_begin) * spec.columns();
            OwnedRows rows{parameter,
                           static_cast<std::int64_t>(g),
                           stepped.row_begin,
                           stepped.row_count,
                           {},
                           rows_view(parameter, offset, stepped.row_count),
                           stepped.offset};
            rows.weight = has_masters()
                              ? as_parameter(spec,
                                             masters_.view(device::DType::float32, {stepped.row_count * spec.columns()},
                                                           (master_offset + stepped.offset) * kFloatBytes),
                                             stepped.row_count)
                              : rows.resting;
            owned_.push_back(rows);
        }
        master_offset += group.layout.gradient_elements(context_.rank);
    }
}

}  // namespace mfsdp::runtime
