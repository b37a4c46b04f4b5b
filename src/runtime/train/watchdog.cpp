#include "runtime/train/watchdog.h"

#include "mfsdp/base/error.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace mfsdp::runtime {

Watchdog::Watchdog(double seconds, std::string message)
    : message_(std::move(message)), thread_([this, seconds] { watch(seconds); }) {}

Watchdog::~Watchdog() {
    {
        const std::lock_guard lock(mutex_);
        is_over_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

void Watchdog::watch(double seconds) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return is_over_; })) return;
    std::fprintf(stderr, "%s\n", message_.c_str());
    std::fflush(nullptr);
    // Not MPI_Abort: MPI itself may be what does not answer. A launcher ends the other ranks when one ends like this.
    std::_Exit(static_cast<int>(ExitCode::communication));
}

}  // namespace mfsdp::runtime
