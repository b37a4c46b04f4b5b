#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace emulated_cuda {

/// Tasks in order: run at once by whoever issues them, or by a thread of the stream's own that pauses between them.
class StreamQueue {
  public:
    StreamQueue(bool asynchronous, std::uint64_t seed);
    StreamQueue(const StreamQueue&) = delete;
    StreamQueue& operator=(const StreamQueue&) = delete;
    ~StreamQueue();

    void push(std::function<void()> task);
    void synchronize();
    [[nodiscard]] bool is_idle();

  private:
    void work();
    void pause();

    std::uint64_t random_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;  // the first one is running
    bool stopping_ = false;
    std::thread thread_;
};

/// How often an event was recorded, and how many of these records its streams have reached.
class EventState {
  public:
    [[nodiscard]] std::uint64_t record();
    void reach(std::uint64_t record);
    [[nodiscard]] std::uint64_t recorded();
    [[nodiscard]] bool is_reached();
    void wait(std::uint64_t record);

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t recorded_ = 0, reached_ = 0;
};

}  // namespace emulated_cuda
