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

/// What a thread stream does before each task: a random pause, or always the same one if task_microseconds > 0.
struct PauseOptions {
    std::uint64_t seed = 1;
    std::int64_t task_microseconds = 0;
};

/// A stream with a thread of its own that pauses before its tasks. Once a task has thrown, later ones are not started
/// and waiting for them throws the same. `timeline` is the stream's own and must outlive it and its events.
[[nodiscard]] std::unique_ptr<CpuStream> make_thread_stream(Device& device, HostTimeline& timeline,
                                                            const PauseOptions& pauses);

}  // namespace mfsdp::device::cpu
