#include "mfsdp/device/event.h"

namespace mfsdp::device {

bool HostTimeline::reached(std::uint64_t value) const {
    if (completed_.load(std::memory_order_acquire) >= value) return true;
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
    return false;
}

void HostTimeline::wait(std::uint64_t value) {
    if (reached(value)) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return completed_.load(std::memory_order_acquire) >= value || failed_.load(); });
    lock.unlock();
    (void)reached(value);  // throws on failure
}

void HostTimeline::advance(std::uint64_t value) {
    {
        const std::lock_guard lock(mutex_);
        completed_.store(value, std::memory_order_release);
    }
    changed_.notify_all();
}

void HostTimeline::fail(std::exception_ptr failure) {
    {
        const std::lock_guard lock(mutex_);
        if (failed_.load()) return;
        failure_ = std::move(failure);
        failed_.store(true, std::memory_order_release);
    }
    changed_.notify_all();
}

}  // namespace mfsdp::device
