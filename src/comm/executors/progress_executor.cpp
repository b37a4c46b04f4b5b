#include "mfsdp/base/error.h"
#include "mfsdp/comm/executor.h"

#include "back_off.h"
#include "lane_run.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

// start() puts a schedule into its lane's inbox and wakes the thread. The thread goes round both lanes: each has one
// schedule under way, each of whose channels has one round under way. A failure ends both lanes, since the communicator
// is dead.

namespace mfsdp::comm {

namespace {

std::size_t at(Lane lane) { return static_cast<std::size_t>(lane); }

class ProgressExecutor final : public Executor {
  public:
    ProgressExecutor(Communicator& communicator, device::Device& device, const ProgressExecutorOptions& options)
        : options_(options),
          runs_{LaneRun(communicator, device, Lane::gather), LaneRun(communicator, device, Lane::reduce)},
          thread_([this] { run(); }) {}

    ~ProgressExecutor() override { stop(); }

    [[nodiscard]] device::Event start(const TransferSchedule& schedule, Lane lane, const TransferBuffers& buffers,
                                      const device::Event& ready) override {
        std::uint64_t number = 0;
        {
            const std::lock_guard lock(mutex_);
            number = ++started_[at(lane)];
            if (!dead_) inboxes_[at(lane)].push({&schedule, buffers, ready, number});
            has_work_.store(true, std::memory_order_release);
        }
        work_.notify_one();
        return {&timelines_[at(lane)], number};
    }

    void abandon() noexcept override {
        if (all_ended()) return;
        stop();
        const auto failure =
            std::make_exception_ptr(CommunicationError("comm: a transfer was given up before its end"));
        for (device::HostTimeline& timeline : timelines_) timeline.fail(failure);
    }

    [[nodiscard]] TransferTotals totals() const override {
        const std::lock_guard lock(totals_mutex_);
        return totals_;
    }
    void reset_totals() override {
        const std::lock_guard lock(totals_mutex_);
        totals_ = {};
    }

  private:
    // A failed lane was cancelled before its timeline says so.
    [[nodiscard]] bool all_ended() noexcept {
        const std::lock_guard lock(mutex_);
        try {
            return timelines_[0].reached(started_[0]) && timelines_[1].reached(started_[1]);
        } catch (...) {
            return true;
        }
    }

    void stop() noexcept {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
            dead_ = true;
        }
        work_.notify_one();
        if (thread_.joinable()) thread_.join();
    }

    void run() {
        try {
            while (wait_for_work()) make_progress();
        } catch (...) {
            {
                const std::lock_guard lock(mutex_);
                dead_ = true;
            }
            // Before anybody hears of the failure and frees memory.
            for (LaneRun& lane : runs_) lane.cancel();
            for (device::HostTimeline& timeline : timelines_) timeline.fail(std::current_exception());
        }
        for (LaneRun& lane : runs_) lane.cancel();
    }

    // False if the executor is being destroyed.
    bool wait_for_work() {
        const bool idle = runs_[0].idle() && runs_[1].idle();
        if (!idle && !has_work_.load(std::memory_order_acquire)) return !stopping_.load();
        std::unique_lock lock(mutex_);
        if (idle) {
            back_off_.reset();
            work_.wait(lock, [this] { return has_work_.load() || stopping_.load(); });
        }
        has_work_.store(false);
        for (std::size_t lane = 0; lane < runs_.size(); ++lane) runs_[lane].queue().take(inboxes_[lane]);
        return !stopping_.load();
    }

    void make_progress() {
        bool happened = false;
        for (const Lane lane : {Lane::gather, Lane::reduce}) {
            MovedBytes moved;
            std::uint64_t ended = 0;
            happened = runs_[at(lane)].advance(moved, ended) || happened;
            count(lane, moved, ended != 0);
            if (ended != 0) timelines_[at(lane)].advance(ended);
        }
        if (happened) {
            back_off_.reset();
            return;
        }
        for (const LaneRun& lane : runs_) lane.check_timeout(options_.timeout_seconds);
        back_off_.pause();
    }

    void count(Lane lane, const MovedBytes& moved, bool ended) {
        if (moved.sent == 0 && moved.received == 0 && !ended) return;
        const std::lock_guard lock(totals_mutex_);
        totals_.bytes_sent[at(lane)] += moved.sent;
        totals_.bytes_received[at(lane)] += moved.received;
        totals_.transfers[at(lane)] += ended ? 1 : 0;
    }

    ProgressExecutorOptions options_;
    std::array<device::HostTimeline, kLanes> timelines_;

    std::mutex mutex_;  // guards what follows; the atomics are also read without it
    std::condition_variable work_;
    std::array<StartedQueue, kLanes> inboxes_;
    std::array<std::uint64_t, kLanes> started_{};
    std::atomic<bool> has_work_{false};
    std::atomic<bool> stopping_{false};
    bool dead_ = false;

    mutable std::mutex totals_mutex_;
    TransferTotals totals_;

    std::array<LaneRun, kLanes> runs_;  // the thread's own
    BackOff back_off_;                  // the thread's own
    std::thread thread_;                // last: it uses everything above
};

}  // namespace

std::unique_ptr<Executor> make_progress_executor(Communicator& communicator, device::Device& device,
                                                 const ProgressExecutorOptions& options) {
    return std::make_unique<ProgressExecutor>(communicator, device, options);
}

}  // namespace mfsdp::comm
