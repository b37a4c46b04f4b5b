#pragma once

#include "mfsdp/comm/executor.h"
#include "mfsdp/device/device.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <cuda_runtime.h>
#include <nccl.h>

namespace mfsdp::comm::nccl {

/// A CUDA event without a time stamp.
class OwnedEvent {
  public:
    OwnedEvent();
    OwnedEvent(OwnedEvent&& other) noexcept : event_(other.event_) { other.event_ = nullptr; }
    OwnedEvent(const OwnedEvent&) = delete;
    OwnedEvent& operator=(const OwnedEvent&) = delete;
    OwnedEvent& operator=(OwnedEvent&&) = delete;
    ~OwnedEvent();

    void record(cudaStream_t stream);
    /// Whether what was recorded last is done; DeviceError if the device has failed.
    [[nodiscard]] bool reached() const;

  private:
    cudaEvent_t event_ = nullptr;
};

/// The stream of one lane and what is under way on it. The host thread issues; the watching thread looks at what is in
/// flight; the executor keeps the two apart.
class LaneStream {
  public:
    using Clock = std::chrono::steady_clock;

    /// Of what is in flight.
    struct Transfer {
        const TransferSchedule* schedule = nullptr;
        std::size_t begin = 0, end = 0;          ///< which events
        bool issued = false;                     ///< both events are recorded
        std::optional<Clock::time_point> since;  ///< when it was first seen to run
    };

    LaneStream(Lane lane, device::Device& device);

    [[nodiscard]] Lane lane() const { return lane_; }
    [[nodiscard]] device::Stream& stream() { return *stream_; }
    [[nodiscard]] cudaStream_t handle() const { return handle_; }

    /// Issues everything of a schedule that `ready` allows from now on; of the host thread alone.
    void issue(const TransferSchedule& schedule, const TransferBuffers& buffers, ncclComm_t communicator);

    /// The transfer that is about to be issued begins here, and ends here.
    void begin(const TransferSchedule& schedule);
    void end();

    /// Forgets what has ended. DeviceError if the device has failed.
    void retire();
    [[nodiscard]] bool idle() const { return in_flight_.empty(); }
    /// The transfer that runs, if one runs for longer than `seconds`.
    [[nodiscard]] const TransferSchedule* overdue(double seconds);

  private:
    void issue_round(const Round& round, const TransferBuffers& buffers, ncclComm_t communicator);
    void issue_message(const TransferOperation& operation, const TransferBuffers& buffers, ncclComm_t communicator);
    void issue_local(const TransferOperation& operation, const TransferBuffers& buffers);
    [[nodiscard]] std::size_t take_event();

    Lane lane_;
    std::unique_ptr<device::Stream> stream_;
    cudaStream_t handle_;
    std::vector<OwnedEvent> events_;
    std::vector<std::size_t> free_events_;
    std::vector<Transfer> in_flight_;  // oldest first
};

/// "gather lane: 'gather block 3'", for messages.
[[nodiscard]] std::string describe(Lane lane, const TransferSchedule& schedule);

}  // namespace mfsdp::comm::nccl
