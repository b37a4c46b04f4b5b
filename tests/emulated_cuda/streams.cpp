#include "emulated_cuda/streams.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace emulated_cuda {

StreamQueue::StreamQueue(bool asynchronous, std::uint64_t seed) : random_(seed * 0x9E3779B97F4A7C15U + 1) {
    if (asynchronous) thread_ = std::thread([this] { work(); });
}

StreamQueue::~StreamQueue() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void StreamQueue::push(std::function<void()> task) {
    if (!thread_.joinable()) {
        task();
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
}

void StreamQueue::synchronize() {
    if (!thread_.joinable()) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tasks_.empty(); });
}

bool StreamQueue::is_idle() {
    const std::lock_guard lock(mutex_);
    return tasks_.empty();
}

// Half of the tasks start at once, most of the others a little later, and a few late enough for other streams and the
// host to run far ahead.
void StreamQueue::pause() {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t random = random_ >> 33U;
    if (random % 2 == 0) return;
    const std::uint64_t limit = random % 32 == 1 ? 2000 : 100;
    std::this_thread::sleep_for(std::chrono::microseconds(random / 32 % limit));
}

void StreamQueue::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        const std::function<void()>& task = tasks_.front();  // stays where it is while others are pushed
        lock.unlock();
        pause();
        task();
        lock.lock();
        tasks_.pop_front();
        changed_.notify_all();
    }
}

std::uint64_t EventState::record() {
    const std::lock_guard lock(mutex_);
    return ++recorded_;
}

void EventState::reach(std::uint64_t record) {
    {
        const std::lock_guard lock(mutex_);
        reached_ = std::max(reached_, record);
    }
    changed_.notify_all();
}

std::uint64_t EventState::recorded() {
    const std::lock_guard lock(mutex_);
    return recorded_;
}

bool EventState::is_reached() {
    const std::lock_guard lock(mutex_);
    return reached_ >= recorded_;
}

void EventState::wait(std::uint64_t record) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_ >= record; });
}

}  // namespace emulated_cuda
