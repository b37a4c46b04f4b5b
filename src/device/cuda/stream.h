#pragma once

#include "mfsdp/device/stream.h"

#include "device/cuda/host_copies.h"
#include "device/cuda/scratch.h"
#include "device/cuda/timeline.h"

#include <cuda_runtime.h>

namespace mfsdp::device::cuda {

/// Owns a CUDA stream that no other waits for by itself.
class OwnedStream {
  public:
    OwnedStream();
    OwnedStream(const OwnedStream&) = delete;
    OwnedStream& operator=(const OwnedStream&) = delete;
    ~OwnedStream();
    [[nodiscard]] cudaStream_t get() const { return stream_; }

  private:
    cudaStream_t stream_ = nullptr;
};

/// A CUDA stream with all that belongs to it. It is the device's own, because events outlive their streams, and serves
/// one stream after the other, because all this is dear to make.
class Queue {
  public:
    explicit Queue(const DeviceFailure& failure) : timeline_(stream_.get(), failure) {}

    [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
    [[nodiscard]] CudaTimeline& timeline() { return timeline_; }
    [[nodiscard]] Scratch& scratch() { return scratch_; }
    [[nodiscard]] HostCopies& host_copies() { return host_copies_; }

    bool taken = false;

  private:
    OwnedStream stream_;
    CudaTimeline timeline_;
    Scratch scratch_{stream_.get()};
    HostCopies host_copies_{stream_.get()};
};

/// A stream of the CUDA device, asynchronous. Waiting for an event of the same backend costs the host nothing; for
/// another's event it blocks.
class CudaStream final : public Stream {
  public:
    CudaStream(Device& device, Queue& queue);
    ~CudaStream() override;

    [[nodiscard]] Event record() override;
    void wait(const Event& event) override;
    void synchronize() override;

    /// For libraries. Whoever issues to it says so by `mark_used`.
    [[nodiscard]] cudaStream_t handle() const { return queue_.stream(); }
    [[nodiscard]] Queue& queue() { return queue_; }
    /// Something was issued: the next record is a new point.
    void mark_used() { used_ = true; }

  private:
    Queue& queue_;
    std::uint64_t last_ = 0;  // value of the last point
    bool used_ = true;        // a queue may have served another stream before
};

}  // namespace mfsdp::device::cuda
