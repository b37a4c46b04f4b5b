#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace mfsdp::comm {

/// What a thread does between two looks at something that has not happened yet: look again, then let others run, then
/// sleep for a small part of the time already waited. Ranks may outnumber cores, so a wait must not hold a core.
class BackOff {
  public:
    using Clock = std::chrono::steady_clock;

    /// Something happened.
    void reset() { looks_ = 0; }

    void pause() {
        ++looks_;
        if (looks_ <= kSpins) return;
        if (looks_ <= kSpins + kYields) {
            if (looks_ == kSpins + 1) since_ = Clock::now();
            std::this_thread::yield();
            return;
        }
        const auto part = std::chrono::duration_cast<std::chrono::microseconds>((Clock::now() - since_) / 50);
        std::this_thread::sleep_for(std::clamp(part, kShortestSleep, kLongestSleep));
    }

  private:
    static constexpr int kSpins = 32;
    static constexpr int kYields = 64;
    static constexpr std::chrono::microseconds kShortestSleep{20};
    static constexpr std::chrono::microseconds kLongestSleep{200};
    int looks_ = 0;
    Clock::time_point since_{};
};

}  // namespace mfsdp::comm
