#pragma once

#include <chrono>

namespace mfsdp::base {

/// Seconds on a clock that never goes back; its zero means nothing.
[[nodiscard]] inline double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Adds the seconds of a scope to a counter, which outlives it.
class Stopwatch {
  public:
    explicit Stopwatch(double& seconds) : seconds_(seconds), begin_(now_seconds()) {}
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;
    ~Stopwatch() { seconds_ += now_seconds() - begin_; }

  private:
    double& seconds_;
    double begin_;
};

}  // namespace mfsdp::base
