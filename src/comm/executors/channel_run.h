#pragma once

#include "mfsdp/comm/communicator.h"
#include "mfsdp/comm/executor.h"
#include "mfsdp/device/device.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::comm {

/// What a schedule's operations need from the outside.
struct TransferContext {
    Communicator* communicator = nullptr;
    device::Device* device = nullptr;
    Lane lane = Lane::gather;
    int tag = 0;
    TransferBuffers buffers;
};

struct MovedBytes {
    std::int64_t sent = 0;
    std::int64_t received = 0;
};

/// The way through the rounds of one channel. Reused from schedule to schedule, so that it stops allocating.
class ChannelRun {
  public:
    void begin(const Channel& channel);
    [[nodiscard]] bool ended() const { return round_ == channel_->rounds.size(); }

    /// Tests what is posted and performs at most one local operation, so that other channels and lanes get their turn.
    /// Whether anything happened. Throws what the communicator throws.
    bool advance(const TransferContext& context, MovedBytes& moved);

    /// Gives up what is posted.
    void cancel(Communicator& communicator) noexcept;

    /// "round 7 waits to receive 4096 bytes from rank 2 (and 3 other messages, 16384 bytes in all)".
    [[nodiscard]] std::string describe_wait() const;

  private:
    struct Posted {
        Communicator::Request request;
        const TransferOperation* operation;
    };

    void begin_round(const TransferContext& context);
    void post(const TransferOperation& operation, const TransferContext& context);

    const Channel* channel_ = nullptr;
    std::size_t round_ = 0;
    bool round_begun_ = false;
    std::vector<Posted> posted_;
    std::vector<const TransferOperation*> local_;  // copies and adds of this round, last first
};

}  // namespace mfsdp::comm
