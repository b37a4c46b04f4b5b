#include "mfsdp/base/error.h"
#include "mfsdp/comm/communicator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

// Each ordered pair of ranks has a mailbox with the sends and receives that have not met. Whoever posts the second half
// of a message copies the bytes, under the mailbox's mutex, and marks both halves done; so a send ends only with its
// receive, and cancel() can be sure that nobody copies any more.

namespace mfsdp::comm {

namespace {

/// Thrown because another rank failed; never the first failure.
class PeerFailure final : public CommunicationError {
  public:
    using CommunicationError::CommunicationError;
};

struct Mailbox;

enum class HalfState : int { free, posted, done };

/// One posted half of a message; owned by the rank that posted it.
struct Half {
    std::atomic<HalfState> state{HalfState::free};
    Mailbox* mailbox = nullptr;
    bool is_send = false;
    Message message;
};

struct Mailbox {
    std::mutex mutex;
    std::vector<Half*> sends;
    std::vector<Half*> receives;
};

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

struct ThreadCluster::State {
    class Rank;

    explicit State(int size) : ranks(size), mailboxes(at(size) * at(size)), arrived(at(size), false) {}

    [[nodiscard]] Mailbox& mailbox(int from, int to) { return mailboxes[at(from) * at(ranks) + at(to)]; }

    /// The first reason stays.
    void fail(const std::string& why) {
        {
            const std::lock_guard lock(mutex);
            if (failed.load()) return;
            reason = why;
            failed.store(true);
        }
        changed.notify_all();
    }
    void check_alive() {
        if (!failed.load()) return;
        const std::lock_guard lock(mutex);
        throw PeerFailure("comm: the cluster of threads is dead: " + reason);
    }

    int ranks;
    std::deque<Mailbox> mailboxes;
    std::vector<std::unique_ptr<Communicator>> communicators;

    std::mutex mutex;  // guards what follows; `failed` is also read without it
    std::condition_variable changed;
    std::atomic<bool> failed{false};
    std::string reason;
    std::vector<bool> arrived;  // in the present all_gather
    int arrivals = 0;
    std::uint64_t generation = 0;
    std::vector<std::byte> board;      // of the present all_gather
    std::vector<std::byte> published;  // of the last complete one
};

class ThreadCluster::State::Rank final : public Communicator {
  public:
    Rank(State& state, int rank) : state_(state), rank_(rank) {}

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return state_.ranks; }
    [[nodiscard]] std::vector<int> node_of_rank() const override { return std::vector<int>(at(state_.ranks), 0); }

    [[nodiscard]] Request post_send(const Message& message) override {
        return post(message, true, state_.mailbox(rank_, checked_peer(message)));
    }
    [[nodiscard]] Request post_receive(const Message& message) override {
        return post(message, false, state_.mailbox(checked_peer(message), rank_));
    }

    [[nodiscard]] bool test(Request request) override {
        Half& half = halves_.at(static_cast<std::size_t>(request));
        const HalfState now = half.state.load(std::memory_order_acquire);
        MFSDP_ASSERT(now != HalfState::free, "a request is tested until it is done and not again");
        if (now == HalfState::done) {
            release(request);
            return true;
        }
        if (state_.failed.load()) cancel(request);  // dead from now on: its memory may go, and nobody may reach it
        state_.check_alive();
        return false;
    }

    void cancel(Request request) noexcept override {
        Half& half = halves_[static_cast<std::size_t>(request)];
        {
            const std::lock_guard lock(half.mailbox->mutex);
            std::erase(half.is_send ? half.mailbox->sends : half.mailbox->receives, &half);
        }
        release(request);
    }

    void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;

    void set_timeout_seconds(double seconds) override { timeout_seconds_ = seconds; }

    [[noreturn]] void abort(int exit_code) override {
        const std::string why =
            "rank " + std::to_string(rank_) + " aborted with exit code " + std::to_string(exit_code);
        state_.fail(why);
        throw CommunicationError("comm: " + why);
    }

  private:
    [[nodiscard]] int checked_peer(const Message& message) const {
        MFSDP_ASSERT(message.peer >= 0 && message.peer < state_.ranks && message.data != nullptr && message.bytes > 0,
                     "a message has a peer, an address and at least one byte");
        return message.peer;
    }

    Request post(const Message& message, bool is_send, Mailbox& mailbox) {
        state_.check_alive();
        const Request request = acquire();
        Half& half = halves_[static_cast<std::size_t>(request)];
        half.mailbox = &mailbox;
        half.is_send = is_send;
        half.message = message;
        half.state.store(HalfState::posted, std::memory_order_relaxed);

        const std::lock_guard lock(mailbox.mutex);
        std::vector<Half*>& others = is_send ? mailbox.receives : mailbox.sends;
        const auto match = std::find_if(others.begin(), others.end(), [&](const Half* other) {
            return other->message.lane == message.lane && other->message.tag == message.tag;
        });
        if (match == others.end()) {
            (is_send ? mailbox.sends : mailbox.receives).push_back(&half);
        } else {
            meet(half, **match);
            others.erase(match);
        }
        return request;
    }

    void meet(Half& mine, Half& other) {
        if (mine.message.bytes != other.message.bytes) {
            const std::string why = "rank " + std::to_string(rank_) + (mine.is_send ? " sends " : " receives ") +
                                    std::to_string(mine.message.bytes) + " bytes where rank " +
                                    std::to_string(mine.message.peer) + (other.is_send ? " sends " : " receives ") +
                                    std::to_string(other.message.bytes);
            state_.fail(why);
            throw CommunicationError("comm: " + why);
        }
        const Half& send = mine.is_send ? mine : other;
        const Half& receive = mine.is_send ? other : mine;
        std::memcpy(receive.message.data, send.message.data, static_cast<std::size_t>(mine.message.bytes));
        mine.state.store(HalfState::done, std::memory_order_release);
        other.state.store(HalfState::done, std::memory_order_release);
    }

    Request acquire() {
        if (free_.empty()) {
            halves_.emplace_back();
            free_.reserve(halves_.size());  // release() must not allocate
            return static_cast<Request>(halves_.size()) - 1;
        }
        const Request request = free_.back();
        free_.pop_back();
        return request;
    }
    void release(Request request) noexcept {
        halves_[static_cast<std::size_t>(request)].state.store(HalfState::free, std::memory_order_relaxed);
        free_.push_back(request);
    }

    State& state_;
    int rank_;
    double timeout_seconds_ = 0.0;
    std::deque<Half> halves_;  // addresses stay: other ranks point to posted halves
    std::vector<Request> free_;
};

void ThreadCluster::State::Rank::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    MFSDP_ASSERT(all.size() == mine.size() * at(state_.ranks), "all ranks' bytes fit the target");
    state_.check_alive();
    std::unique_lock lock(state_.mutex);
    if (state_.arrivals == 0) state_.board.assign(all.size(), std::byte{0});
    MFSDP_ASSERT(state_.board.size() == all.size(), "all ranks give the same number of bytes");
    std::copy(mine.begin(), mine.end(), state_.board.begin() + static_cast<std::ptrdiff_t>(mine.size() * at(rank_)));
    state_.arrived[at(rank_)] = true;
    const std::uint64_t generation = state_.generation;
    if (++state_.arrivals == state_.ranks) {
        // Nobody still reads the last result: every rank has come back from it.
        state_.published.swap(state_.board);
        state_.arrivals = 0;
        state_.arrived.assign(at(state_.ranks), false);
        ++state_.generation;
        lock.unlock();
        state_.changed.notify_all();
        lock.lock();
    } else {
        const auto over = [&] { return state_.generation != generation || state_.failed.load(); };
        if (timeout_seconds_ <= 0.0) {
            state_.changed.wait(lock, over);
        } else if (!state_.changed.wait_for(lock, std::chrono::duration<double>(timeout_seconds_), over)) {
            std::string missing;
            for (int rank = 0; rank < state_.ranks; ++rank) {
                if (!state_.arrived[at(rank)]) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
            }
            throw CommunicationError("comm: host exchange: no answer from rank " + missing + " within " +
                                     std::to_string(timeout_seconds_) + " s");
        }
        if (state_.generation == generation) {
            lock.unlock();
            state_.check_alive();
        }
    }
    std::copy(state_.published.begin(), state_.published.end(), all.begin());
}

ThreadCluster::ThreadCluster(int ranks) {
    MFSDP_ASSERT(ranks >= 1, "a cluster has at least one rank");
    state_ = std::make_unique<State>(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
        state_->communicators.push_back(std::make_unique<State::Rank>(*state_, rank));
    }
}

ThreadCluster::~ThreadCluster() = default;

Communicator& ThreadCluster::rank(int rank) { return *state_->communicators.at(at(rank)); }

int ThreadCluster::size() const { return state_->ranks; }

void ThreadCluster::run(const std::function<void(Communicator&)>& body) {
    struct Outcome {
        std::exception_ptr failure;
        bool because_of_peer = false;
    };
    std::vector<Outcome> outcomes(at(size()));
    const auto run_rank = [&](int rank) {
        Outcome& outcome = outcomes[at(rank)];
        const std::string place = "rank " + std::to_string(rank) + " failed";
        try {
            body(this->rank(rank));
        } catch (const PeerFailure&) {
            outcome = {std::current_exception(), true};
            state_->fail(place);
        } catch (const std::exception& error) {
            outcome = {std::current_exception(), false};
            state_->fail(place + ": " + error.what());
        } catch (...) {
            outcome = {std::current_exception(), false};
            state_->fail(place);
        }
    };
    {
        std::vector<std::jthread> threads;
        threads.reserve(outcomes.size());
        for (int rank = 0; rank < size(); ++rank) threads.emplace_back(run_rank, rank);
    }
    for (const bool because_of_peer : {false, true}) {
        for (const Outcome& outcome : outcomes) {
            if (outcome.failure != nullptr && outcome.because_of_peer == because_of_peer) {
                std::rethrow_exception(outcome.failure);
            }
        }
    }
}

}  // namespace mfsdp::comm
