#include "comm/nccl/nccl_executor.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/event.h"

#include "comm/nccl/error.h"
#include "comm/nccl/lane.h"
#include "comm/nccl/meeting.h"
#include "comm/nccl/owned_communicator.h"
#include "device/cuda/device.h"
#include "device/cuda/error.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

// start() issues a whole schedule to its lane's stream: the host is free again before anything has moved. What moves is
// watched by a thread of its own, because a transfer whose peer is gone never ends: NCCL's kernel waits for it, and so
// does everything behind it on the device. The thread asks NCCL for asynchronous errors and looks at how long the
// transfer at the head of each lane has been running. When one fails, it aborts both communicators, which ends their
// kernels, and fails the device: whoever waits for anything on it from then on gets the CommunicationError.
//
// The host itself may be stuck inside NCCL, which makes connections when two ranks first meet. That is no state to
// throw from, or to abort a communicator in; past its limit the process is ended.

namespace mfsdp::comm::nccl {

namespace {

using Clock = LaneStream::Clock;

constexpr std::chrono::milliseconds kLookEvery{20};
constexpr double kFinishSeconds = 60;

std::size_t at(Lane lane) { return static_cast<std::size_t>(lane); }

int current_ordinal() {
    int ordinal = 0;
    MFSDP_CUDA(cudaGetDevice(&ordinal));
    return ordinal;
}

/// A call that may block the host. Described when it has done so for too long: a step allocates nothing.
struct HostCall {
    const char* what = "";
    double limit_seconds = 0.0;
    const TransferSchedule* schedule = nullptr;
    Lane lane = Lane::gather;
    Clock::time_point since = Clock::now();

    [[nodiscard]] std::string describe() const {
        std::string text = what;
        if (schedule != nullptr) text.append(nccl::describe(lane, *schedule));
        return text;
    }
};

class NcclExecutor final : public Executor {
  public:
    NcclExecutor(Communicator& communicator, device::Device& device, const NcclExecutorOptions& options)
        : options_(options),
          rank_(communicator.rank()),
          ordinal_(current_ordinal()),
          device_(static_cast<device::cuda::CudaDevice&>(device)),
          lanes_{LaneStream(Lane::gather, device), LaneStream(Lane::reduce, device)},
          watcher_([this] { watch(); }) {
        try {
            meet(communicator);
        } catch (...) {
            stop_watching();
            throw;
        }
    }

    ~NcclExecutor() override {
        if (all_ended()) {
            try {
                call({"end of NCCL's communicators", kFinishSeconds}, [&] {
                    for (OwnedCommunicator& communicator : communicators_) communicator.finish();
                });
            } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): dead already, nothing to finish
            }
        } else {
            abandon();
        }
        stop_watching();
    }

    [[nodiscard]] device::Event start(const TransferSchedule& schedule, Lane lane, const TransferBuffers& buffers,
                                      const device::Event& ready) override {
        LaneStream& stream = lanes_[at(lane)];
        stream.stream().wait(ready);
        {
            const std::lock_guard lock(mutex_);
            if (failure_) std::rethrow_exception(failure_);
            stream.begin(schedule);
        }
        call({"start of the ", options_.timeout_seconds, &schedule, lane},
             [&] { stream.issue(schedule, buffers, communicators_[at(lane)].get()); });
        const std::lock_guard lock(mutex_);
        stream.end();
        totals_.bytes_sent[at(lane)] += schedule.bytes_sent();
        totals_.bytes_received[at(lane)] += schedule.bytes_received();
        ++totals_.transfers[at(lane)];
        return stream.stream().record();
    }

    void abandon() noexcept override {
        if (!all_ended()) {
            const std::lock_guard lock(mutex_);
            fail(std::make_exception_ptr(CommunicationError("comm: a transfer was given up before its end")));
        }
        // What was given up, now or before, ends by itself; it must be over before its memory goes.
        for (LaneStream& lane : lanes_) MFSDP_CUDA_NOTHROW(cudaStreamSynchronize(lane.handle()));
    }

    [[nodiscard]] TransferTotals totals() const override {
        const std::lock_guard lock(mutex_);
        return totals_;
    }
    void reset_totals() override {
        const std::lock_guard lock(mutex_);
        totals_ = {};
    }

  private:
    void meet(Communicator& communicator) {
        const std::array<ncclUniqueId, kLanes> ids = exchange_ids(communicator);
        call({"start of NCCL", options_.init_timeout_seconds}, [&] {
            for (std::size_t lane = 0; lane < ids.size(); ++lane) {
                communicators_[lane].meet(ids[lane], communicator.size(), communicator.rank());
            }
        });
    }

    /// Runs what may block inside NCCL, under the eyes of the watching thread.
    template <class Body>
    void call(const HostCall& host_call, const Body& body) {
        set_call(host_call);
        try {
            body();
        } catch (...) {
            set_call(std::nullopt);
            const std::lock_guard lock(mutex_);
            fail(std::current_exception());
            throw;
        }
        set_call(std::nullopt);
    }

    void set_call(const std::optional<HostCall>& call) {
        {
            const std::lock_guard lock(mutex_);
            if (call && failure_) std::rethrow_exception(failure_);
            host_call_ = call;
        }
        changed_.notify_one();
    }

    /// Ends everything under way and all that waits for it. The mutex is held.
    void fail(const std::exception_ptr& failure) noexcept {
        if (failure_) return;
        failure_ = failure;
        device_.fail(failure);
        abort_communicators();
    }

    /// As one group: the end of one waits for the GPU, where the other's kernels must be told to end too. Should it
    /// hang all the same, the process ends.
    void abort_communicators() noexcept {
        std::promise<void> ended;
        std::thread aborting([&] {
            MFSDP_CUDA_NOTHROW(cudaSetDevice(ordinal_));
            MFSDP_NCCL_NOTHROW(ncclGroupStart());
            for (OwnedCommunicator& communicator : communicators_) communicator.abort();
            MFSDP_NCCL_NOTHROW(ncclGroupEnd());
            ended.set_value();
        });
        if (ended.get_future().wait_for(std::chrono::duration<double>(kFinishSeconds)) != std::future_status::ready) {
            options_.give_up("comm: NCCL's communicators do not end on rank " + std::to_string(rank_));
        }
        aborting.join();
    }

    [[nodiscard]] bool all_ended() noexcept {
        const std::lock_guard lock(mutex_);
        if (failure_) return true;
        try {
            for (LaneStream& lane : lanes_) lane.retire();
            return lanes_[0].idle() && lanes_[1].idle();
        } catch (...) {
            fail(std::current_exception());
            return true;
        }
    }

    void stop_watching() noexcept {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        changed_.notify_one();
        if (watcher_.joinable()) watcher_.join();
    }

    void watch() {
        MFSDP_CUDA_NOTHROW(cudaSetDevice(ordinal_));
        std::unique_lock lock(mutex_);
        while (!stopping_) {
            if (!failure_) look();
            const bool quiet = !host_call_ && (failure_ || (lanes_[0].idle() && lanes_[1].idle()));
            if (quiet) {
                changed_.wait(lock);
            } else {
                changed_.wait_for(lock, kLookEvery);
            }
        }
    }

    /// The mutex is held.
    void look() {
        if (host_call_) {
            const double blocks_for = std::chrono::duration<double>(Clock::now() - host_call_->since).count();
            if (blocks_for > host_call_->limit_seconds) {
                options_.give_up("comm: " + host_call_->describe() + ": no answer from all ranks within " +
                                 std::to_string(host_call_->limit_seconds) + " s on rank " + std::to_string(rank_));
            }
            return;  // no communicator is aborted while the host is inside it
        }
        try {
            for (std::size_t lane = 0; lane < lanes_.size(); ++lane) look_at(lanes_[lane], communicators_[lane]);
        } catch (...) {
            fail(std::current_exception());
        }
    }

    void look_at(LaneStream& lane, const OwnedCommunicator& communicator) const {
        if (const std::string reason = communicator.failure(); !reason.empty()) {
            throw CommunicationError(lane_text(lane) + "NCCL reports on rank " + std::to_string(rank_) + ": " + reason);
        }
        lane.retire();
        if (const TransferSchedule* const late = lane.overdue(options_.timeout_seconds); late != nullptr) {
            throw CommunicationError(lane_text(lane) + "no progress of '" + late->name + "' for " +
                                     std::to_string(options_.timeout_seconds) + " s on rank " + std::to_string(rank_));
        }
    }

    [[nodiscard]] static std::string lane_text(const LaneStream& lane) {
        return lane.lane() == Lane::gather ? "comm: gather lane: " : "comm: reduce lane: ";
    }

    NcclExecutorOptions options_;
    int rank_;
    int ordinal_;
    device::cuda::CudaDevice& device_;

    mutable std::mutex mutex_;  // guards what follows, except what the host thread issues inside a HostCall
    std::condition_variable changed_;
    std::array<LaneStream, kLanes> lanes_;
    std::array<OwnedCommunicator, kLanes> communicators_;
    TransferTotals totals_;
    std::optional<HostCall> host_call_;
    std::exception_ptr failure_;
    bool stopping_ = false;

    std::thread watcher_;  // last: it uses everything above
};

}  // namespace

std::unique_ptr<Executor> make_executor(Communicator& communicator, device::Device& device,
                                        const NcclExecutorOptions& options) {
    return std::make_unique<NcclExecutor>(communicator, device, options);
}

}  // namespace mfsdp::comm::nccl
