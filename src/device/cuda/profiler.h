#pragma once

namespace mfsdp::device::cuda {

// Named ranges in the records of NVIDIA's profilers (NVTX). They cost a few nanoseconds where no profiler watches.

void profiler_begin(const char* name) noexcept;
void profiler_end() noexcept;

class ProfilerRange {
  public:
    explicit ProfilerRange(const char* name) noexcept { profiler_begin(name); }
    ProfilerRange(const ProfilerRange&) = delete;
    ProfilerRange& operator=(const ProfilerRange&) = delete;
    ~ProfilerRange() { profiler_end(); }
};

}  // namespace mfsdp::device::cuda
