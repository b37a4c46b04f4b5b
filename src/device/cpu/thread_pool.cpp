#include "device/cpu/thread_pool.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#ifdef MFSDP_WITH_ONEDNN
#include <omp.h>
#endif

namespace mfsdp::device::cpu {

namespace {

// oneDNN asks OpenMP how many threads the calling thread may use; with more than one it would split long sums.
void forbid_library_threads() {
#ifdef MFSDP_WITH_ONEDNN
    omp_set_num_threads(1);
#endif
}

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// About 20 microseconds: longer than the gap between two operations of a layer, shorter than a transfer.
constexpr int kSpinRounds = 1000;

}  // namespace

// One call ("job") at a time. The caller opens a job, works on it itself, closes it when no piece is left and waits for
// the workers that joined. A worker that wakes too late finds the job closed and sleeps again, so nobody ever waits for
// a thread that has not been given a core.
struct ThreadPool::State {
    explicit State(int thread_count)
        : spin_rounds(thread_count <= static_cast<int>(std::thread::hardware_concurrency()) ? kSpinRounds : 0) {}

    void work_on_job();
    void worker();
    void finish_job();
    void stop();

    const int spin_rounds;
    std::mutex turn;  // held by the caller for the whole call

    std::mutex mutex;  // guards the members down to `failure`
    std::condition_variable opened;
    std::condition_variable left;
    bool open = false;
    bool stopping = false;
    Piece piece = nullptr;
    const void* context = nullptr;
    std::int64_t count = 0;
    std::exception_ptr failure;

    // Written under the mutex; also read without it by spinning threads.
    std::atomic<std::uint64_t> generation{0};
    std::atomic<int> joined{0};

    std::atomic<std::int64_t> next{0};
    std::vector<std::thread> workers;
};

void ThreadPool::State::work_on_job() {
    try {
        for (;;) {
            const std::int64_t index = next.fetch_add(1, std::memory_order_relaxed);
            if (index >= count) return;
            piece(context, index);
        }
    } catch (...) {
        next.store(count, std::memory_order_relaxed);  // the other pieces are of no use any more
        const std::lock_guard lock(mutex);
        if (failure == nullptr) failure = std::current_exception();
    }
}

void ThreadPool::State::worker() {
    forbid_library_threads();
    std::uint64_t seen = 0;
    for (;;) {
        for (int i = 0; i < spin_rounds && generation.load(std::memory_order_acquire) == seen; ++i) pause();
        {
            std::unique_lock lock(mutex);
            opened.wait(lock, [&] { return stopping || generation.load(std::memory_order_relaxed) != seen; });
            if (stopping) return;
            seen = generation.load(std::memory_order_relaxed);
            if (!open) continue;
            joined.fetch_add(1, std::memory_order_relaxed);
        }
        work_on_job();
        const std::lock_guard lock(mutex);
        if (joined.fetch_sub(1, std::memory_order_release) == 1) left.notify_one();
    }
}

void ThreadPool::State::finish_job() {
    {
        const std::lock_guard lock(mutex);
        open = false;
    }
    for (int i = 0; i < spin_rounds && joined.load(std::memory_order_acquire) != 0; ++i) pause();
    std::unique_lock lock(mutex);
    left.wait(lock, [&] { return joined.load(std::memory_order_relaxed) == 0; });
}

void ThreadPool::State::stop() {
    {
        const std::lock_guard lock(mutex);
        stopping = true;
        generation.fetch_add(1, std::memory_order_release);
    }
    opened.notify_all();
    for (std::thread& worker : workers) worker.join();
}

ThreadPool::ThreadPool(int threads) {
    MFSDP_ASSERT(threads >= 1, "a pool has the calling thread at least, got " + std::to_string(threads));
    state_ = std::make_unique<State>(threads);
    state_->workers.reserve(static_cast<std::size_t>(threads - 1));
    try {
        for (int i = 1; i < threads; ++i) state_->workers.emplace_back([state = state_.get()] { state->worker(); });
    } catch (const std::system_error& error) {
        // Threads that are still joinable when their owner dies would end the program without a word.
        const std::size_t started = state_->workers.size() + 1;
        state_->stop();
        throw DeviceError("device: the machine starts no more than " + std::to_string(started) + " of " +
                          std::to_string(threads) + " compute threads: " + error.code().message());
    }
}

ThreadPool::~ThreadPool() { state_->stop(); }

int ThreadPool::threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(std::int64_t count, Piece piece, const void* context) {
    if (count <= 0) return;
    State& state = *state_;
    const std::lock_guard turn(state.turn);
    forbid_library_threads();
    if (count == 1 || state.workers.empty()) {
        for (std::int64_t index = 0; index < count; ++index) piece(context, index);
        return;
    }
    {
        const std::lock_guard lock(state.mutex);
        state.open = true;
        state.piece = piece;
        state.context = context;
        state.count = count;
        state.failure = nullptr;
        state.next.store(0, std::memory_order_relaxed);
        state.generation.fetch_add(1, std::memory_order_release);
    }
    const auto helpers = std::min<std::int64_t>(count - 1, static_cast<std::int64_t>(state.workers.size()));
    if (helpers == static_cast<std::int64_t>(state.workers.size())) {
        state.opened.notify_all();
    } else {
        for (std::int64_t i = 0; i < helpers; ++i) state.opened.notify_one();
    }
    state.work_on_job();
    state.finish_job();
    if (state.failure != nullptr) std::rethrow_exception(std::exchange(state.failure, nullptr));
}

}  // namespace mfsdp::device::cpu
