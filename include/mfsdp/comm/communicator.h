#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace mfsdp::comm {

/// Two independent message spaces, so that gathers and reductions run at once without a common order.
enum class Lane : std::uint8_t { gather, reduce };
inline constexpr int kLanes = 2;

inline constexpr std::int64_t kMaxMessageBytes = std::int64_t{1} << 30;  ///< counts of MPI are int

/// A point-to-point message between two ranks. Messages of one (pair, lane, tag) match in the order of posting.
struct Message {
    int peer = 0;
    Lane lane = Lane::gather;
    int tag = 0;                ///< 0 .. 32767
    std::byte* data = nullptr;  ///< host address; untouched (send) or undefined (receive) until done
    std::int64_t bytes = 0;     ///< > 0, equal on both sides, at most kMaxMessageBytes
};

/// The ranks of a run. It moves bytes between two ranks and exchanges small host values between all; it offers no
/// tensor gather, reduce or broadcast: those are transfer schedules.
///
/// post_send, post_receive and test are for one thread (the executor's), all_gather for one other (the host
/// thread); the two may run at once.
class Communicator {
  public:
    Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;
    virtual ~Communicator() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    /// Number of the machine that each rank runs on, 0 .. machines - 1, in order of first appearance.
    [[nodiscard]] virtual std::vector<int> node_of_rank() const = 0;

    /// A handle for test(); done when the data may be reused (send) or read (receive).
    using Request = std::int64_t;
    /// Starts a message and returns at once; its bytes must stay until it is done.
    [[nodiscard]] virtual Request post_send(const Message& message) = 0;
    /// Offers memory for a message and returns at once; the bytes are there when it is done.
    [[nodiscard]] virtual Request post_receive(const Message& message) = 0;
    /// True once; the handle is dead afterwards. CommunicationError if the transfer failed.
    [[nodiscard]] virtual bool test(Request request) = 0;
    /// Gives up a posted message whose memory is about to go; the handle is dead. Only for the way down after a
    /// failure: the peer's side never ends, so the communicator is dead too.
    virtual void cancel(Request request) noexcept = 0;

    /// all[r * mine.size() ...] = what rank r gave. Same size on all ranks. Blocks; CommunicationError after the
    /// timeout without an answer from all.
    virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
    /// Longest wait of all_gather; 0: for ever.
    virtual void set_timeout_seconds(double seconds) = 0;

    /// Ends the whole job with `exit_code`, from any thread, without the other ranks' consent. Where the ranks are
    /// threads (ThreadCluster) it throws instead.
    [[noreturn]] virtual void abort(int exit_code) = 0;
};

/// One rank, no transport: a program started without mpirun.
[[nodiscard]] std::unique_ptr<Communicator> make_self_communicator();

/// Whether this build has MPI.
[[nodiscard]] bool mpi_available();
/// All ranks of mpirun or srun; initialises MPI (threads: multiple) and finalises it when destroyed. ConfigError if MPI
/// is not in this build or grants no threads. One rank is no error: whoever knows how the process was started judges.
[[nodiscard]] std::unique_ptr<Communicator> make_mpi_communicator();

/// N ranks as threads of one process, for tests. `ranks[r]` is rank r's communicator; a send ends only with its
/// receive (rendezvous). abort() makes every rank's pending and later calls throw CommunicationError instead of ending
/// the process, and throws CommunicationError itself.
class ThreadCluster {
  public:
    explicit ThreadCluster(int ranks);
    ~ThreadCluster();
    [[nodiscard]] Communicator& rank(int rank);
    [[nodiscard]] int size() const;
    /// Runs body(communicator) on one thread per rank and joins. A rank that throws fails the others' pending and
    /// later calls, so that nothing hangs; run() then rethrows what the lowest rank threw of its own accord, not what
    /// the others threw because of it. After a failure the cluster is dead.
    void run(const std::function<void(Communicator&)>& body);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mfsdp::comm
