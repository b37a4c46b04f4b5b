#pragma once

#include "mfsdp/comm/communicator.h"
#include "mfsdp/comm/link_model.h"
#include "mfsdp/comm/transfer_schedule.h"
#include "mfsdp/device/device.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace mfsdp::comm {

/// Device addresses of the buffers that a schedule names; unused ones stay null.
struct TransferBuffers {
    std::array<std::byte*, kBufferRoles> base{};

    std::byte*& operator[](BufferRole role) { return base[static_cast<std::size_t>(role)]; }
    std::byte* operator[](BufferRole role) const { return base[static_cast<std::size_t>(role)]; }
};

/// What an executor has moved since the last reset.
struct TransferTotals {
    std::array<std::int64_t, kLanes> bytes_sent{};
    std::array<std::int64_t, kLanes> bytes_received{};
    std::array<std::int64_t, kLanes> transfers{};  ///< schedules that ran to their end
};

/// Runs transfer schedules. Schedules of one lane run one after the other in the order of their start, which is the
/// same on all ranks; the two lanes run at once.
class Executor {
  public:
    Executor() = default;
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;
    virtual ~Executor() = default;

    /// Starts a schedule once `ready` is reached and returns the event of its end, without blocking. The schedule must
    /// live until then. A failed transfer fails the lane's timeline: whoever waits gets the CommunicationError.
    [[nodiscard]] virtual device::Event start(const TransferSchedule& schedule, Lane lane,
                                              const TransferBuffers& buffers, const device::Event& ready) = 0;
    /// Ends or gives up what has not ended; afterwards nothing touches its memory and schedules. A transfer that was
    /// given up fails its lane, as above, and the communicator is dead; where all has ended, nothing happens. For
    /// whoever must release that memory early, on the way down after a failure. Blocks for local work only.
    virtual void abandon() noexcept = 0;
    /// What this rank has moved since the last reset, by lane.
    [[nodiscard]] virtual TransferTotals totals() const = 0;
    /// Sets the totals to zero.
    virtual void reset_totals() = 0;
};

/// One rank: copies and adds only, as device operations on one stream per lane; what it has issued counts as moved.
[[nodiscard]] std::unique_ptr<Executor> make_self_executor(device::Device& device);

struct ProgressExecutorOptions {
    double timeout_seconds = 600;  ///< without any progress of a started transfer: CommunicationError
};

/// For communicators whose transport reads host memory (threads, MPI): one progress thread for both lanes, which also
/// performs copies and adds. Sleeps when idle; yields while waiting, since ranks may outnumber cores. Destroying it
/// abandons what has not ended.
[[nodiscard]] std::unique_ptr<Executor> make_progress_executor(Communicator& communicator, device::Device& device,
                                                               const ProgressExecutorOptions& options);

struct NcclExecutorOptions {
    double init_timeout_seconds = 300;  ///< for all ranks to meet in NCCL
    double timeout_seconds = 600;       ///< without the end of a transfer that may run: CommunicationError
    /// Ends the process, saying why: called from another thread where this rank's host is stuck inside NCCL for longer
    /// than its limit, which no exception can end.
    std::function<void(const std::string& reason)> give_up;
    std::string module_path;  ///< as CudaDeviceOptions::module_path
};

/// One GPU per rank: rounds as groups of NCCL messages, copies and adds as device operations, on one stream and one
/// NCCL communicator per lane. Takes schedules whose messages stand in one channel, and broadcasts as they are. start()
/// waits on streams only; what it has issued counts as moved. Every rank starts the transfers of both lanes in one
/// order, and all ranks make and destroy their executors together. `device` is a CUDA device; ConfigError without NCCL.
[[nodiscard]] std::unique_ptr<Executor> make_nccl_executor(Communicator& communicator, device::Device& device,
                                                           const NcclExecutorOptions& options);

/// Moves nothing: counts the bytes of rank `rank` and answers with modelled times, its peers taken as ready.
[[nodiscard]] std::unique_ptr<Executor> make_counting_executor(int rank, const Mesh& mesh, const LinkModel& links);

}  // namespace mfsdp::comm
