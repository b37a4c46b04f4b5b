#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mfsdp::device::cpu {

/// Working memory of the calling thread, aligned to 64 bytes, kept between calls: it grows to the largest size asked
/// for, so that a step allocates nothing. Contents are undefined; the next call on the thread with the same `Use` gives
/// the same memory. `Use` tells apart memory that is needed at the same time.
template <class T = float, class Use = void>
inline T* thread_scratch(std::int64_t elements) {
    constexpr std::int64_t kLineElements = 64 / static_cast<std::int64_t>(sizeof(T));
    struct alignas(64) Line {
        T values[kLineElements];
    };
    thread_local std::vector<Line> lines;
    const auto wanted = static_cast<std::size_t>((elements + kLineElements - 1) / kLineElements);
    if (lines.size() < wanted) lines.resize(wanted);
    return lines.empty() ? nullptr : lines.data()->values;
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
