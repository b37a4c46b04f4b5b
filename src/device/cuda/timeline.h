#pragma once

#include "mfsdp/device/event.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>

#include <cuda_runtime.h>

namespace mfsdp::device::cuda {

/// Why nothing on the device can be relied on any more, from whichever thread found out.
class DeviceFailure {
  public:
    /// The first failure counts.
    void set(std::exception_ptr failure);
    /// Throws the failure if there is one.
    void rethrow() const;

  private:
    std::atomic<bool> failed_{false};
    std::exception_ptr failure_;  // written once, before failed_
    std::mutex mutex_;
};

/// The points recorded on one CUDA stream. Each has the event of a ring that is made once; when its turn comes again it
/// stands for the newer point, which lies behind the older one on the same stream: whoever waits for the older then
/// waits a little longer, and never for ever, because all that is between them was issued before.
class CudaTimeline final : public Timeline {
  public:
    CudaTimeline(cudaStream_t stream, const DeviceFailure& failure);
    ~CudaTimeline() override;

    /// The value of the point after everything issued so far.
    [[nodiscard]] std::uint64_t record();
    /// An event that is reached only when `value` is.
    [[nodiscard]] cudaEvent_t event(std::uint64_t value) const { return events_[value % kEvents]; }

    [[nodiscard]] bool reached(std::uint64_t value) const override;
    void wait(std::uint64_t value) override;

  private:
    static constexpr std::uint64_t kEvents = 256;

    cudaStream_t stream_;
    const DeviceFailure& failure_;
    std::array<cudaEvent_t, kEvents> events_{};
    std::uint64_t recorded_ = 0;
    mutable std::atomic<std::uint64_t> completed_{0};
    // A point that was not reached when last asked for, and when that was.
    mutable std::atomic<std::uint64_t> unreached_{0};
    mutable std::atomic<std::chrono::steady_clock::time_point> asked_{};
};

}  // namespace mfsdp::device::cuda
