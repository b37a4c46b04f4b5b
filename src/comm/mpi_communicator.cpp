#include "mfsdp/base/error.h"
#include "mfsdp/comm/communicator.h"

#ifndef MFSDP_WITH_MPI

namespace mfsdp::comm {

bool mpi_available() { return false; }

std::unique_ptr<Communicator> make_mpi_communicator() {
    throw ConfigError("comm: this build has no MPI and runs one rank; configure it with MFSDP_WITH_MPI=ON");
}

}  // namespace mfsdp::comm

#else

#include "executors/back_off.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include <mpi.h>

namespace mfsdp::comm {

namespace {

void check(int code, const char* what) {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw CommunicationError(std::string("comm: ") + what +
                             " failed: " + std::string(text.data(), static_cast<std::size_t>(length)));
}

/// MPI from its initialisation to its end.
class MpiSession {
  public:
    MpiSession() {
        int initialized = 0;
        MPI_Initialized(&initialized);
        MFSDP_ASSERT(initialized == 0, "a process makes one MPI communicator in its life");
        int granted = MPI_THREAD_SINGLE;
        check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &granted), "MPI_Init_thread");
        if (granted < MPI_THREAD_MULTIPLE) {
            MPI_Finalize();
            throw ConfigError("comm: this MPI grants thread level " + std::to_string(granted) +
                              ", wanted MPI_THREAD_MULTIPLE; use an MPI built with thread support");
        }
    }
    MpiSession(const MpiSession&) = delete;
    MpiSession& operator=(const MpiSession&) = delete;
    ~MpiSession() { MPI_Finalize(); }
};

/// A communicator of our own, apart from the messages of others.
class OwnedComm {
  public:
    OwnedComm() {
        check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
        MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    }
    OwnedComm(const OwnedComm&) = delete;
    OwnedComm& operator=(const OwnedComm&) = delete;
    ~OwnedComm() { MPI_Comm_free(&comm_); }
    [[nodiscard]] MPI_Comm get() const { return comm_; }

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
};

class MpiCommunicator final : public Communicator {
  public:
    MpiCommunicator() {
        check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
        check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
        requests_.reserve(kReservedRequests);
        free_.reserve(kReservedRequests);
        find_nodes();
    }

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    [[nodiscard]] std::vector<int> node_of_rank() const override { return node_of_rank_; }

    [[nodiscard]] Request post_send(const Message& message) override {
        const Request handle = acquire(message);
        check(MPI_Isend(message.data, static_cast<int>(message.bytes), MPI_BYTE, message.peer, message.tag,
                        lane(message), &at(handle)),
              "MPI_Isend");
        return handle;
    }
    [[nodiscard]] Request post_receive(const Message& message) override {
        const Request handle = acquire(message);
        check(MPI_Irecv(message.data, static_cast<int>(message.bytes), MPI_BYTE, message.peer, message.tag,
                        lane(message), &at(handle)),
              "MPI_Irecv");
        return handle;
    }
    [[nodiscard]] bool test(Request request) override {
        int done = 0;
        check(MPI_Test(&at(request), &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done == 0) return false;
        free_.push_back(request);
        return true;
    }
    void cancel(Request request) noexcept override {
        // Not waited for: the peer may be gone. The job ends by abort().
        MPI_Cancel(&at(request));
        MPI_Request_free(&at(request));
        free_.push_back(request);
    }

    void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
        MFSDP_ASSERT(all.size() == mine.size() * static_cast<std::size_t>(size_) &&
                         all.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
                     "all ranks' bytes fit the target, and their number an int");
        const int bytes = static_cast<int>(mine.size());
        MPI_Request request = MPI_REQUEST_NULL;
        check(MPI_Iallgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, host_.get(), &request),
              "MPI_Iallgather");
        const auto begin = BackOff::Clock::now();
        BackOff back_off;
        for (int done = 0; done == 0;) {
            check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "host exchange");
            if (done != 0) break;
            const double waited = std::chrono::duration<double>(BackOff::Clock::now() - begin).count();
            if (timeout_seconds_ > 0.0 && waited > timeout_seconds_) {
                throw CommunicationError("comm: host exchange: rank " + std::to_string(rank_) +
                                         " has no answer from all " + std::to_string(size_) + " ranks within " +
                                         std::to_string(timeout_seconds_) + " s");
            }
            back_off.pause();
        }
    }
    void set_timeout_seconds(double seconds) override { timeout_seconds_ = seconds; }

    [[noreturn]] void abort(int exit_code) noexcept override {
        std::fflush(nullptr);
        MPI_Abort(MPI_COMM_WORLD, exit_code);
        std::_Exit(exit_code);
    }

  private:
    // Enough for the rounds of hundreds of ranks; more is allocated once.
    static constexpr std::size_t kReservedRequests = 4096;

    void find_nodes() {
        MPI_Comm node = MPI_COMM_NULL;
        check(MPI_Comm_split_type(host_.get(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
              "MPI_Comm_split_type");
        int first = rank_;  // lowest rank of this machine
        const int code = MPI_Allreduce(&rank_, &first, 1, MPI_INT, MPI_MIN, node);
        MPI_Comm_free(&node);
        check(code, "MPI_Allreduce");
        std::vector<int> firsts(static_cast<std::size_t>(size_));
        all_gather(std::as_bytes(std::span(&first, 1)), std::as_writable_bytes(std::span(firsts)));
        std::vector<int> seen;
        for (const int leader : firsts) {
            const auto found = std::find(seen.begin(), seen.end(), leader);
            node_of_rank_.push_back(static_cast<int>(found - seen.begin()));
            if (found == seen.end()) seen.push_back(leader);
        }
    }

    [[nodiscard]] MPI_Comm lane(const Message& message) const {
        return lanes_[static_cast<std::size_t>(message.lane)].get();
    }
    [[nodiscard]] MPI_Request& at(Request handle) { return requests_[static_cast<std::size_t>(handle)]; }

    Request acquire(const Message& message) {
        MFSDP_ASSERT(message.peer >= 0 && message.peer < size_ && message.data != nullptr && message.bytes > 0 &&
                         message.bytes <= kMaxMessageBytes,
                     "a message has a peer, an address, at least one byte and at most 2^30");
        if (free_.empty()) {
            requests_.push_back(MPI_REQUEST_NULL);
            free_.reserve(requests_.capacity());  // cancel() must not allocate
            return static_cast<Request>(requests_.size()) - 1;
        }
        const Request handle = free_.back();
        free_.pop_back();
        return handle;
    }

    MpiSession session_;  // first: the rest needs MPI
    OwnedComm host_;
    std::array<OwnedComm, kLanes> lanes_;
    int rank_ = 0;
    int size_ = 1;
    double timeout_seconds_ = 0.0;
    std::vector<int> node_of_rank_;
    std::vector<MPI_Request> requests_;  // handles are indices; Open MPI's requests may move
    std::vector<Request> free_;
};

}  // namespace

bool mpi_available() { return true; }

std::unique_ptr<Communicator> make_mpi_communicator() { return std::make_unique<MpiCommunicator>(); }

}  // namespace mfsdp::comm

#endif
