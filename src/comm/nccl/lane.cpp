#include "comm/nccl/lane.h"

#include "mfsdp/base/error.h"

#include "comm/nccl/error.h"
#include "device/cuda/error.h"
#include "device/cuda/stream.h"

#include <algorithm>
#include <string>

namespace mfsdp::comm::nccl {

namespace {

bool is_message(const TransferOperation& operation) {
    return operation.kind != OperationKind::copy && operation.kind != OperationKind::add;
}

bool has_messages(const Round& round) {
    return std::any_of(round.operations.begin(), round.operations.end(), is_message);
}

bool has_messages(const Channel& channel) {
    return std::any_of(channel.rounds.begin(), channel.rounds.end(),
                       [](const Round& round) { return has_messages(round); });
}

std::byte* address_of(const TransferBuffers& buffers, BufferRole role, std::int64_t offset, device::DType dtype) {
    MFSDP_ASSERT(buffers[role] != nullptr, "a started schedule has its buffer '" + std::string(name(role)) + "' bound");
    return buffers[role] + offset * device::size_of(dtype);
}

/// Calls between its making and end() are one NCCL operation. Where an exception comes between, the group is closed.
class Group {
  public:
    Group() { MFSDP_NCCL(ncclGroupStart()); }
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    ~Group() {
        if (open_) MFSDP_NCCL_NOTHROW(ncclGroupEnd());
    }
    void end() {
        open_ = false;
        MFSDP_NCCL(ncclGroupEnd());
    }

  private:
    bool open_ = true;
};

}  // namespace

OwnedEvent::OwnedEvent() { MFSDP_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }

OwnedEvent::~OwnedEvent() {
    if (event_ != nullptr) MFSDP_CUDA_NOTHROW(cudaEventDestroy(event_));
}

void OwnedEvent::record(cudaStream_t stream) { MFSDP_CUDA(cudaEventRecord(event_, stream)); }

bool OwnedEvent::reached() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    MFSDP_CUDA(status);
    return true;
}

LaneStream::LaneStream(Lane lane, device::Device& device)
    : lane_(lane), stream_(device.make_stream()), handle_(static_cast<device::cuda::CudaStream&>(*stream_).handle()) {}

void LaneStream::issue(const TransferSchedule& schedule, const TransferBuffers& buffers, ncclComm_t communicator) {
    // A stream takes one round after the other, so that messages of two channels would wait for each other.
    MFSDP_ASSERT(std::count_if(schedule.channels.begin(), schedule.channels.end(),
                               [](const Channel& channel) { return has_messages(channel); }) <= 1,
                 "the messages of a schedule for NCCL stand in one channel: '" + schedule.name + "'");
    static_cast<device::cuda::CudaStream&>(*stream_).mark_used();
    for (const Channel& channel : schedule.channels) {
        for (const Round& round : channel.rounds) issue_round(round, buffers, communicator);
    }
}

void LaneStream::issue_round(const Round& round, const TransferBuffers& buffers, ncclComm_t communicator) {
    if (has_messages(round)) {
        Group group;
        for (const TransferOperation& operation : round.operations) {
            if (is_message(operation)) issue_message(operation, buffers, communicator);
        }
        group.end();
    }
    for (const TransferOperation& operation : round.operations) {
        if (!is_message(operation)) issue_local(operation, buffers);
    }
}

void LaneStream::issue_message(const TransferOperation& operation, const TransferBuffers& buffers,
                               ncclComm_t communicator) {
    std::byte* const data = address_of(buffers, operation.buffer, operation.offset, operation.source_dtype);
    const auto bytes = static_cast<std::size_t>(operation.count * device::size_of(operation.source_dtype));
    if (operation.kind == OperationKind::send) {
        MFSDP_NCCL(ncclSend(data, bytes, ncclUint8, operation.peer, communicator, handle_));
    } else if (operation.kind == OperationKind::receive) {
        MFSDP_NCCL(ncclRecv(data, bytes, ncclUint8, operation.peer, communicator, handle_));
    } else {
        MFSDP_NCCL(ncclBroadcast(data, data, bytes, ncclUint8, operation.peer, communicator, handle_));
    }
}

void LaneStream::issue_local(const TransferOperation& operation, const TransferBuffers& buffers) {
    const auto tensor = [&](BufferRole role, std::int64_t offset, device::DType dtype) {
        return device::Tensor::dense(address_of(buffers, role, offset, dtype), dtype, {operation.count});
    };
    const device::Tensor target = tensor(operation.buffer, operation.offset, operation.target_dtype);
    const device::Tensor source = tensor(operation.source_buffer, operation.source_offset, operation.source_dtype);
    if (operation.kind == OperationKind::add) {
        device::launch(*stream_, device::Add{target, target, source});
    } else {
        device::launch(*stream_, device::Copy{target, source});
    }
}

std::size_t LaneStream::take_event() {
    if (free_events_.empty()) {
        free_events_.push_back(events_.size());
        events_.emplace_back();
    }
    const std::size_t taken = free_events_.back();
    free_events_.pop_back();
    return taken;
}

void LaneStream::begin(const TransferSchedule& schedule) {
    Transfer transfer{&schedule, take_event(), 0, false, {}};
    events_[transfer.begin].record(handle_);
    in_flight_.push_back(transfer);
}

void LaneStream::end() {
    Transfer& transfer = in_flight_.back();
    transfer.end = take_event();
    events_[transfer.end].record(handle_);
    transfer.issued = true;
}

void LaneStream::retire() {
    auto first = in_flight_.begin();
    for (; first != in_flight_.end() && first->issued && events_[first->end].reached(); ++first) {
        free_events_.push_back(first->begin);
        free_events_.push_back(first->end);
    }
    in_flight_.erase(in_flight_.begin(), first);
}

const TransferSchedule* LaneStream::overdue(double seconds) {
    if (in_flight_.empty() || !in_flight_.front().issued) return nullptr;
    Transfer& first = in_flight_.front();
    if (!first.since) {
        if (events_[first.begin].reached()) first.since = Clock::now();
        return nullptr;
    }
    const double runs_for = std::chrono::duration<double>(Clock::now() - *first.since).count();
    return runs_for > seconds ? first.schedule : nullptr;
}

std::string describe(Lane lane, const TransferSchedule& schedule) {
    std::string text = lane == Lane::gather ? "gather lane: '" : "reduce lane: '";
    return text.append(schedule.name).append("'");
}

}  // namespace mfsdp::comm::nccl
