#include "device/cpu/stream.h"

#include "mfsdp/base/error.h"

#include "device/cpu/mix.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace mfsdp::device::cpu {

namespace {

class InlineStream final : public CpuStream {
  public:
    explicit InlineStream(Device& device) : CpuStream(device, true) {}

    [[nodiscard]] Event record() override { return {}; }
    void wait(const Event& event) override { event.wait(); }
    void synchronize() override {}
    void enqueue(std::function<void()> /*task*/) override {
        MFSDP_ASSERT(is_inline() == false, "operations of an inline stream are called, not queued");
    }
};

class ThreadStream final : public CpuStream {
  public:
    ThreadStream(Device& device, HostTimeline& timeline, std::uint64_t pause_seed, std::function<void()> before_task)
        : CpuStream(device, false),
          timeline_(timeline),
          before_task_(std::move(before_task)),
          delay_state_(pause_seed),
          thread_([this] { work(); }) {}

    ~ThreadStream() override {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }

    [[nodiscard]] Event record() override {
        const std::lock_guard lock(mutex_);
        return {&timeline_, issued_, 0.0};
    }
    void wait(const Event& event) override {
        if (event.timeline == nullptr) return;
        enqueue([event] { event.wait(); });
    }
    void synchronize() override { record().wait(); }

    void enqueue(std::function<void()> task) override {
        {
            const std::lock_guard lock(mutex_);
            tasks_.push_back(std::move(task));
            ++issued_;
        }
        changed_.notify_one();
    }

  private:
    // Half of the tasks start at once, most of the others a little later, and a few late enough for other streams to
    // run far ahead.
    void pause() {
        delay_state_ += kMixIncrement;
        const std::uint64_t random = mix(delay_state_);
        if (random % 2 == 0) return;
        const std::uint64_t limit = random % 32 == 1 ? 2000 : 100;
        std::this_thread::sleep_for(std::chrono::microseconds((random >> 8) % limit));
    }

    void work() {
        bool failed = false;
        for (std::uint64_t done = 1;; ++done) {
            std::function<void()> task;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
                if (tasks_.empty()) return;
                task = std::move(tasks_.front());
                tasks_.pop_front();
            }
            if (failed) continue;
            if (!before_task_) pause();
            try {
                if (before_task_) before_task_();
                task();
                timeline_.advance(done);
            } catch (...) {
                failed = true;
                timeline_.fail(std::current_exception());
            }
        }
    }

    HostTimeline& timeline_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    std::uint64_t issued_ = 0;
    bool stopping_ = false;
    std::function<void()> before_task_;
    std::uint64_t delay_state_;
    std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<CpuStream> make_inline_stream(Device& device) { return std::make_unique<InlineStream>(device); }

std::unique_ptr<CpuStream> make_thread_stream(Device& device, HostTimeline& timeline, std::uint64_t pause_seed,
                                              std::function<void()> before_task) {
    return std::make_unique<ThreadStream>(device, timeline, pause_seed, std::move(before_task));
}

}  // namespace mfsdp::device::cpu
