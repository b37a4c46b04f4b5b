#include "random_order_executor.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/event.h"

#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace mfsdp::test {

namespace {

using namespace comm;

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

struct Started {
    const TransferSchedule* schedule = nullptr;
    TransferBuffers buffers;
    device::Event ready;
    std::uint64_t number = 0;
};

struct OpenOperation {
    const TransferOperation* operation;
    std::int64_t message_number;  // among those of its direction and peer in this schedule
};

struct OpenChannel {
    std::size_t next_round = 0;
    std::vector<OpenOperation> open;     // of the present round
    std::vector<std::int64_t> sent;      // messages posted per peer
    std::vector<std::int64_t> received;  // messages posted per peer
};

struct LaneState {
    std::deque<Started> queue;
    bool running = false;
    std::vector<OpenChannel> channels;
    std::uint64_t started = 0;
    device::HostTimeline timeline;
};

struct RankState {
    device::Device* device = nullptr;
    std::array<LaneState, kLanes> lanes;
    TransferTotals totals;
};

/// An operation that may come next, with its other side if it is a message.
struct Candidate {
    int rank;
    std::size_t lane;
    std::size_t channel;
    std::size_t index;
    int peer = -1;
    std::size_t peer_channel = 0;
    std::size_t peer_index = 0;
};

float element(const std::byte* base, device::DType dtype, std::int64_t i) {
    std::uint32_t bits = 0;
    if (dtype == device::DType::bfloat16) {
        std::uint16_t upper = 0;
        std::memcpy(&upper, base + 2 * i, 2);
        bits = std::uint32_t{upper} << 16U;
    } else {
        std::memcpy(&bits, base + 4 * i, 4);
    }
    float value = 0.0F;
    std::memcpy(&value, &bits, 4);
    return value;
}

}  // namespace

struct RandomOrderHub::State {
    class RankExecutor;

    State(int size, std::uint64_t seed) : ranks(at(size)), random(seed) {}

    std::mutex mutex;  // guards everything; operations run under it
    std::condition_variable changed;
    std::deque<RankState> ranks;
    std::mt19937_64 random;
    bool stopping = false;
    std::thread thread;

    void run() {
        std::unique_lock lock(mutex);
        while (!stopping) {
            try {
                if (step()) continue;
            } catch (...) {
                fail_all(std::current_exception());
                return;
            }
            // Events of devices do not wake this thread.
            changed.wait_for(lock, std::chrono::microseconds(200));
        }
        fail_all(std::make_exception_ptr(CommunicationError("comm: the random-order hub was stopped")));
    }

    void fail_all(const std::exception_ptr& failure) {
        for (RankState& rank : ranks) {
            for (LaneState& lane : rank.lanes) lane.timeline.fail(failure);
        }
    }

    // Begins what may begin, ends what is over, and applies one operation drawn at random.
    bool step() {
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            for (std::size_t lane = 0; lane < kLanes; ++lane) settle(ranks[rank], lane);
        }
        const std::optional<Candidate> next = draw();
        if (!next) return false;
        apply(*next);
        return true;
    }

    void settle(RankState& rank, std::size_t index) {
        LaneState& lane = rank.lanes[index];
        while (!lane.queue.empty()) {
            const Started& started = lane.queue.front();
            if (!lane.running) {
                if (!started.ready.done()) return;
                lane.channels.assign(started.schedule->channels.size(), {});
                for (std::size_t c = 0; c < lane.channels.size(); ++c) {
                    lane.channels[c].sent.assign(ranks.size(), 0);
                    lane.channels[c].received.assign(ranks.size(), 0);
                }
                lane.running = true;
            }
            bool over = true;
            for (std::size_t c = 0; c < lane.channels.size(); ++c) {
                over = next_round(lane.channels[c], started.schedule->channels[c]) && over;
            }
            if (!over) return;
            lane.running = false;
            const std::uint64_t number = started.number;
            lane.queue.pop_front();
            ++rank.totals.transfers[index];
            lane.timeline.advance(number);
        }
    }

    // Whether the channel is over.
    static bool next_round(OpenChannel& open, const Channel& channel) {
        while (open.open.empty()) {
            if (open.next_round == channel.rounds.size()) return true;
            for (const TransferOperation& operation : channel.rounds[open.next_round++].operations) {
                std::int64_t number = -1;
                if (operation.kind == OperationKind::send) number = open.sent.at(at(operation.peer))++;
                if (operation.kind == OperationKind::receive) number = open.received.at(at(operation.peer))++;
                open.open.push_back({&operation, number});
            }
        }
        return false;
    }

    // The first operation that may come next, from random starting points on: every legal one can be drawn.
    std::optional<Candidate> draw() {
        const std::size_t lanes = ranks.size() * kLanes;
        const std::size_t first = random() % lanes;
        for (std::size_t i = 0; i < lanes; ++i) {
            const std::size_t place = (first + i) % lanes;
            Candidate candidate{static_cast<int>(place / kLanes), place % kLanes, 0, 0};
            LaneState& lane = ranks[at(candidate.rank)].lanes[candidate.lane];
            if (!lane.running) continue;
            const std::size_t first_channel = lane.channels.empty() ? 0 : random() % lane.channels.size();
            for (std::size_t c = 0; c < lane.channels.size(); ++c) {
                candidate.channel = (first_channel + c) % lane.channels.size();
                const std::size_t open = lane.channels[candidate.channel].open.size();
                const std::size_t first_operation = open == 0 ? 0 : random() % open;
                for (std::size_t o = 0; o < open; ++o) {
                    candidate.index = (first_operation + o) % open;
                    if (may_come_next(candidate)) return candidate;
                }
            }
        }
        return std::nullopt;
    }

    // Fills in the other side of a message.
    bool may_come_next(Candidate& candidate) {
        LaneState& mine = ranks[at(candidate.rank)].lanes[candidate.lane];
        const OpenOperation& open = mine.channels[candidate.channel].open[candidate.index];
        if (open.operation->kind == OperationKind::receive) return false;  // drawn from the sender's side
        if (open.operation->kind != OperationKind::send) return true;
        LaneState& other = ranks.at(at(open.operation->peer)).lanes[candidate.lane];
        if (!other.running || other.queue.front().number != mine.queue.front().number) return false;
        for (std::size_t channel = 0; channel < other.channels.size(); ++channel) {
            for (std::size_t i = 0; i < other.channels[channel].open.size(); ++i) {
                const OpenOperation& theirs = other.channels[channel].open[i];
                if (theirs.operation->kind == OperationKind::receive && theirs.operation->peer == candidate.rank &&
                    theirs.message_number == open.message_number) {
                    candidate.peer = open.operation->peer;
                    candidate.peer_channel = channel;
                    candidate.peer_index = i;
                    return true;
                }
            }
        }
        return false;
    }

    std::byte* address(int rank, std::size_t lane, BufferRole role, std::int64_t offset, device::DType dtype) {
        std::byte* base = ranks[at(rank)].lanes[lane].queue.front().buffers[role];
        MFSDP_ASSERT(base != nullptr, "a started schedule has its buffers bound");
        std::byte* host = ranks[at(rank)].device->host_address(base + offset * device::size_of(dtype));
        MFSDP_ASSERT(host != nullptr, "the host reaches the memory");
        return host;
    }

    void apply(const Candidate& candidate) {
        std::vector<OpenOperation>& open =
            ranks[at(candidate.rank)].lanes[candidate.lane].channels[candidate.channel].open;
        const TransferOperation& operation = *open[candidate.index].operation;
        const std::int64_t bytes = operation.count * device::size_of(operation.source_dtype);
        if (operation.kind == OperationKind::send) {
            std::vector<OpenOperation>& theirs =
                ranks[at(candidate.peer)].lanes[candidate.lane].channels[candidate.peer_channel].open;
            const TransferOperation& receive = *theirs[candidate.peer_index].operation;
            MFSDP_ASSERT(receive.count == operation.count && receive.target_dtype == operation.source_dtype,
                         "both sides of a message agree");
            std::memcpy(
                address(candidate.peer, candidate.lane, receive.buffer, receive.offset, receive.target_dtype),
                address(candidate.rank, candidate.lane, operation.buffer, operation.offset, operation.source_dtype),
                static_cast<std::size_t>(bytes));
            ranks[at(candidate.rank)].totals.bytes_sent[candidate.lane] += bytes;
            ranks[at(candidate.peer)].totals.bytes_received[candidate.lane] += bytes;
            theirs.erase(theirs.begin() + static_cast<std::ptrdiff_t>(candidate.peer_index));
        } else {
            perform(candidate, operation, static_cast<std::size_t>(bytes));
        }
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(candidate.index));
    }

    void perform(const Candidate& candidate, const TransferOperation& operation, std::size_t bytes) {
        std::byte* target =
            address(candidate.rank, candidate.lane, operation.buffer, operation.offset, operation.target_dtype);
        const std::byte* source = address(candidate.rank, candidate.lane, operation.source_buffer,
                                          operation.source_offset, operation.source_dtype);
        if (operation.kind == OperationKind::copy && operation.source_dtype == operation.target_dtype) {
            std::memcpy(target, source, bytes);
            return;
        }
        for (std::int64_t i = 0; i < operation.count; ++i) {
            float value = element(source, operation.source_dtype, i);
            if (operation.kind == OperationKind::add) value = element(target, operation.target_dtype, i) + value;
            std::memcpy(target + 4 * i, &value, 4);
        }
    }
};

class RandomOrderHub::State::RankExecutor final : public Executor {
  public:
    RankExecutor(State& state, int rank) : state_(state), rank_(rank) {}

    [[nodiscard]] device::Event start(const TransferSchedule& schedule, Lane lane, const TransferBuffers& buffers,
                                      const device::Event& ready) override {
        const std::lock_guard lock(state_.mutex);
        LaneState& mine = state_.ranks[at(rank_)].lanes[static_cast<std::size_t>(lane)];
        mine.queue.push_back({&schedule, buffers, ready, ++mine.started});
        state_.changed.notify_one();
        return {&mine.timeline, mine.started};
    }
    void abandon() noexcept override {
        const std::lock_guard lock(state_.mutex);
        for (LaneState& lane : state_.ranks[at(rank_)].lanes) {
            if (lane.queue.empty()) continue;
            lane.queue.clear();
            lane.running = false;
            lane.timeline.fail(std::make_exception_ptr(CommunicationError("comm: a transfer was given up")));
        }
    }
    [[nodiscard]] TransferTotals totals() const override {
        const std::lock_guard lock(state_.mutex);
        return state_.ranks[at(rank_)].totals;
    }
    void reset_totals() override {
        const std::lock_guard lock(state_.mutex);
        state_.ranks[at(rank_)].totals = {};
    }

  private:
    State& state_;
    int rank_;
};

RandomOrderHub::RandomOrderHub(int ranks, std::uint64_t seed) : state_(std::make_unique<State>(ranks, seed)) {
    state_->thread = std::thread([this] { state_->run(); });
}

RandomOrderHub::~RandomOrderHub() {
    stop();
    state_->thread.join();
}

void RandomOrderHub::stop() {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_one();
}

std::unique_ptr<Executor> RandomOrderHub::make_executor(int rank, device::Device& device) {
    const std::lock_guard lock(state_->mutex);
    state_->ranks.at(at(rank)).device = &device;
    return std::make_unique<State::RankExecutor>(*state_, rank);
}

}  // namespace mfsdp::test
