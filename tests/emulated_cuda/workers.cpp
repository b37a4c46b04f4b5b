#include "emulated_cuda/workers.h"

#include "emulated_cuda/runtime.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace emulated_cuda {

namespace {

class Helpers {
  public:
    explicit Helpers(int count) {
        for (int i = 0; i < count; ++i) threads_.emplace_back([this] { serve(); });
    }
    Helpers(const Helpers&) = delete;
    Helpers& operator=(const Helpers&) = delete;
    ~Helpers() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        changed_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

    void run(const std::function<void()>& work) {
        const std::unique_lock turn(turn_, std::try_to_lock);
        if (!turn.owns_lock() || threads_.empty()) {
            work();
            return;
        }
        {
            const std::lock_guard lock(mutex_);
            work_ = &work;
            busy_ = threads_.size();
            ++round_;
        }
        changed_.notify_all();
        work();
        std::unique_lock lock(mutex_);
        finished_.wait(lock, [&] { return busy_ == 0; });
    }

  private:
    void serve() {
        std::unique_lock lock(mutex_);
        for (std::uint64_t seen = 0;;) {
            changed_.wait(lock, [&] { return stopping_ || round_ != seen; });
            if (stopping_) return;
            seen = round_;
            const std::function<void()>& work = *work_;
            lock.unlock();
            work();
            lock.lock();
            if (--busy_ == 0) finished_.notify_all();
        }
    }

    std::mutex turn_, mutex_;
    std::condition_variable changed_, finished_;
    const std::function<void()>* work_ = nullptr;
    std::uint64_t round_ = 0;
    std::size_t busy_ = 0;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

int helper_count() {
    const int workers = settings().workers;
    return (workers > 0 ? workers : static_cast<int>(std::thread::hardware_concurrency())) - 1;
}

}  // namespace

void run_with_helpers(const std::function<void()>& work) {
    static Helpers helpers(helper_count());
    helpers.run(work);
}

}  // namespace emulated_cuda
