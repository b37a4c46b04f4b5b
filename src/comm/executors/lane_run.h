#pragma once

#include "mfsdp/comm/executor.h"
#include "mfsdp/device/event.h"

#include "channel_run.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::comm {

struct StartedSchedule {
    const TransferSchedule* schedule = nullptr;
    TransferBuffers buffers;
    device::Event ready;
    std::uint64_t number = 0;  ///< of the lane, from 1: its value on the lane's timeline, and the source of its tag
};

/// A first-in-first-out queue that keeps its memory.
class StartedQueue {
  public:
    [[nodiscard]] bool empty() const { return first_ == items_.size(); }
    [[nodiscard]] const StartedSchedule& front() const { return items_[first_]; }
    void push(const StartedSchedule& item) { items_.push_back(item); }
    void pop() {
        if (++first_ == items_.size()) clear();
    }
    void clear() {
        items_.clear();
        first_ = 0;
    }
    /// Moves everything from `other`, from which nothing was popped, to the end.
    void take(StartedQueue& other) {
        items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
        items_.insert(items_.end(), other.items_.begin(), other.items_.end());
        other.clear();
    }

  private:
    std::vector<StartedSchedule> items_;
    std::size_t first_ = 0;
};

/// Schedules of one lane on their way, one after the other. Belongs to the progress thread.
class LaneRun {
  public:
    using Clock = std::chrono::steady_clock;

    LaneRun(Communicator& communicator, device::Device& device, Lane lane);

    [[nodiscard]] StartedQueue& queue() { return queue_; }
    [[nodiscard]] bool idle() const { return queue_.empty(); }
    /// Whether anything happened. `ended` is set to the number of a schedule that ended now, else left alone.
    bool advance(MovedBytes& moved, std::uint64_t& ended);
    /// CommunicationError if a schedule that may run has made no progress for this long; 0: never.
    void check_timeout(double timeout_seconds) const;
    void cancel() noexcept;

  private:
    void begin(const StartedSchedule& started);
    [[nodiscard]] std::size_t channel_count() const { return queue_.front().schedule->channels.size(); }

    TransferContext context_;
    StartedQueue queue_;
    bool running_ = false;
    std::vector<ChannelRun> channels_;
    Clock::time_point last_progress_;
};

}  // namespace mfsdp::comm
