#pragma once

#include <cstdint>
#include <vector>

namespace mfsdp::device::cpu {

/// Working memory of the calling thread, aligned to 64 bytes, kept between calls: it grows to the largest size asked
/// for, so that a step allocates nothing. Contents are undefined; the next call on the thread gives the same memory.
inline float* thread_scratch(std::int64_t floats) {
    struct alignas(64) Line {
        float values[16];
    };
    thread_local std::vector<Line> lines;
    const auto wanted = static_cast<std::size_t>((floats + 15) / 16);
    if (lines.size() < wanted) lines.resize(wanted);
    return lines.data()->values;
}

/// Cuts one piece of scratch after another; every piece starts on 64 bytes.
class ScratchCutter {
  public:
    explicit ScratchCutter(float* begin) : next_(begin) {}
    float* take(std::int64_t floats) {
        float* const result = next_;
        next_ += (floats + 15) / 16 * 16;
        return result;
    }

  private:
    float* next_;
};

}  // namespace mfsdp::device::cpu
