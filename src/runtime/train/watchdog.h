#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace mfsdp::runtime {

/// Ends the process with exit code 6 and a message, unless it is destroyed in time: for calls that have no timeout of
/// their own, such as the start of MPI, which waits for ranks that may never come.
class Watchdog {
  public:
    /// seconds  > 0
    /// message  a sentence, printed on stderr
    Watchdog(double seconds, std::string message);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

  private:
    void watch(double seconds);

    std::string message_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_over_ = false;
    std::thread thread_;  // last: it uses everything above
};

}  // namespace mfsdp::runtime
