#include "channel_run.h"

#include "mfsdp/base/error.h"

#include "local_operations.h"

namespace mfsdp::comm {

namespace {

std::int64_t bytes_of(const TransferOperation& operation) {
    return operation.count * device::size_of(operation.source_dtype);
}

std::byte* host_address_of(const TransferContext& context, BufferRole role, std::int64_t offset, device::DType dtype) {
    std::byte* address = context.device->host_address(address_of(context.buffers, role, offset, dtype));
    MFSDP_ASSERT(address != nullptr, "the host reaches the device memory that a host transport moves");
    return address;
}

}  // namespace

void ChannelRun::begin(const Channel& channel) {
    channel_ = &channel;
    round_ = 0;
    round_begun_ = false;
    posted_.clear();
    local_.clear();
}

bool ChannelRun::advance(const TransferContext& context, MovedBytes& moved) {
    if (ended()) return false;
    bool happened = false;
    if (!round_begun_) {
        begin_round(context);
        happened = true;
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < posted_.size(); ++i) {
        const Posted& posted = posted_[i];
        bool done = false;
        try {
            done = context.communicator->test(posted.request);
        } catch (...) {
            // The request is dead; only the others may be cancelled.
            posted_.erase(posted_.begin() + static_cast<std::ptrdiff_t>(kept),
                          posted_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
            throw;
        }
        if (!done) {
            posted_[kept++] = posted;
            continue;
        }
        happened = true;
        const bool is_send = posted.operation->kind == OperationKind::send;
        (is_send ? moved.sent : moved.received) += bytes_of(*posted.operation);
    }
    posted_.resize(kept);
    if (!local_.empty()) {
        const TransferOperation& operation = *local_.back();
        local_.pop_back();
        perform_on_host(
            operation, host_address_of(context, operation.buffer, operation.offset, operation.target_dtype),
            host_address_of(context, operation.source_buffer, operation.source_offset, operation.source_dtype));
        happened = true;
    }
    if (posted_.empty() && local_.empty()) {
        ++round_;
        round_begun_ = false;
        happened = true;
    }
    return happened;
}

void ChannelRun::begin_round(const TransferContext& context) {
    const Round& round = channel_->rounds[round_];
    for (const TransferOperation& operation : round.operations) {
        switch (operation.kind) {
            case OperationKind::send:
            case OperationKind::receive:
                post(operation, context);
                break;
            case OperationKind::copy:
            case OperationKind::add:
                local_.push_back(&operation);
                break;
            case OperationKind::broadcast:
                throw InternalError("comm: this transport knows no broadcasts; use another gather");
        }
    }
    round_begun_ = true;
}

void ChannelRun::post(const TransferOperation& operation, const TransferContext& context) {
    Message message;
    message.peer = operation.peer;
    message.lane = context.lane;
    message.tag = context.tag;
    message.data = host_address_of(context, operation.buffer, operation.offset, operation.source_dtype);
    message.bytes = bytes_of(operation);
    if (posted_.size() == posted_.capacity())
        posted_.reserve(2 * posted_.size() + 8);  // a posted request must not be lost
    const bool is_send = operation.kind == OperationKind::send;
    posted_.push_back(
        {is_send ? context.communicator->post_send(message) : context.communicator->post_receive(message), &operation});
}

void ChannelRun::cancel(Communicator& communicator) noexcept {
    for (const Posted& posted : posted_) communicator.cancel(posted.request);
    posted_.clear();
    local_.clear();
}

std::string ChannelRun::describe_wait() const {
    if (posted_.empty()) return "round " + std::to_string(round_) + " waits for no message";
    const TransferOperation& first = *posted_.front().operation;
    const bool is_send = first.kind == OperationKind::send;
    std::string text = "round " + std::to_string(round_) + " waits to " + (is_send ? "send " : "receive ") +
                       std::to_string(bytes_of(first)) + " bytes " + (is_send ? "to" : "from") + " rank " +
                       std::to_string(first.peer);
    if (posted_.size() > 1) {
        std::int64_t total = 0;
        for (const Posted& posted : posted_) total += bytes_of(*posted.operation);
        text += " (one of " + std::to_string(posted_.size()) + " messages with " + std::to_string(total) +
                " bytes outstanding)";
    }
    return text;
}

}  // namespace mfsdp::comm
