#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

namespace mfsdp::device {

/// A counter that only grows; work issued in order on one stream or transfer lane finishes in order on its timeline.
/// Recording an event therefore allocates nothing: an event is a timeline and a value.
class Timeline {
  public:
    Timeline() = default;
    Timeline(const Timeline&) = delete;
    Timeline& operator=(const Timeline&) = delete;
    virtual ~Timeline() = default;

    /// Whether everything up to `value` is done. Throws what the work threw, if it failed.
    [[nodiscard]] virtual bool reached(std::uint64_t value) const = 0;
    /// Blocks the calling thread until `value` is reached; throws what the work threw.
    virtual void wait(std::uint64_t value) = 0;
};

/// A point on a timeline. A default event is complete. `modelled_seconds` is used by the counting device only: the
/// modelled time at which the point is reached.
struct Event {
    Timeline* timeline = nullptr;
    std::uint64_t value = 0;
    double modelled_seconds = 0.0;

    [[nodiscard]] bool done() const { return timeline == nullptr || timeline->reached(value); }
    void wait() const {
        if (timeline != nullptr) timeline->wait(value);
    }
};

/// A timeline advanced by a host thread.
class HostTimeline final : public Timeline {
  public:
    [[nodiscard]] bool reached(std::uint64_t value) const override;
    void wait(std::uint64_t value) override;

    /// Marks everything up to `value` done and wakes the waiting threads.
    void advance(std::uint64_t value);
    /// Marks the timeline failed: present and later waits throw `failure`.
    void fail(std::exception_ptr failure);

  private:
    std::atomic<std::uint64_t> completed_{0};
    std::atomic<bool> failed_{false};
    std::exception_ptr failure_;  // written once, before failed_
    mutable std::mutex mutex_;
    std::condition_variable changed_;
};

}  // namespace mfsdp::device
