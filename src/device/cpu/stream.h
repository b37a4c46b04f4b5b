#pragma once

#include "mfsdp/device/stream.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace mfsdp::device::cpu {

/// A stream of the CPU device. An inline stream has done everything by the time it returns to the host.
class CpuStream : public Stream {
  public:
    CpuStream(Device& device, bool is_inline) : Stream(device), is_inline_(is_inline) {}

    [[nodiscard]] bool is_inline() const { return is_inline_; }
    /// Runs `task` after everything issued before; only for streams that are not inline.
    virtual void enqueue(std::function<void()> task) = 0;

  private:
    bool is_inline_;
};

[[nodiscard]] std::unique_ptr<CpuStream> make_inline_stream(Device& device);

/// A stream with a thread of its own. Before each task it calls `before_task`, or makes a random pause if there is
/// none. Once a task has thrown, later ones are not started and waiting for them throws the same. `timeline` is the
/// stream's own and must outlive it and its events.
[[nodiscard]] std::unique_ptr<CpuStream> make_thread_stream(Device& device, HostTimeline& timeline,
                                                            std::uint64_t pause_seed,
                                                            std::function<void()> before_task);

}  // namespace mfsdp::device::cpu
