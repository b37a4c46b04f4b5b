#include "mfsdp/comm/schedule_checker.h"

#include "mfsdp/base/error.h"

#include "schedule_conflicts.h"
#include "symbolic_memory.h"

#include <array>
#include <deque>
#include <map>
#include <utility>
#include <vector>

// Since operations that run at once do not conflict (checked first) and messages of a pair match in a fixed order, all
// legal orders of execution end in the same state: one order proves them all. A round whose local operations are done
// and whose messages have all met is over; if nothing can move any more before all rounds are over, it is a deadlock,
// also under any other order, since meeting a message never takes away another's chance to meet.

namespace mfsdp::comm {

namespace {

using Kind = SymbolicValue::Kind;

std::string describe(const SymbolicValue& value) {
    switch (value.kind) {
        case Kind::unknown:
            return "nothing known";
        case Kind::element:
            return "a copy";
        case Kind::leaf:
            return "leaf " + std::to_string(value.contributor);
        case Kind::sum:
            return std::string("the sum of the first ") + std::to_string(value.leaves) + " leaves" +
                   (value.on_top ? " on top of the former value" : "");
    }
    return "?";
}

struct ChannelState {
    std::size_t round = 0;
    bool begun = false;
    int messages_open = 0;
};

struct RankState {
    std::array<SymbolicMemory, kBufferRoles> memory;
    std::vector<ChannelState> channels;
    [[nodiscard]] SymbolicMemory& of(BufferRole role) { return memory[static_cast<std::size_t>(role)]; }
};

struct PostedMessage {
    int rank;
    std::size_t channel;
    const TransferOperation* operation;
};

struct PairQueue {
    std::deque<PostedMessage> sends;
    std::deque<PostedMessage> receives;
};

class Check {
  public:
    Check(const Movement& movement, std::span<const TransferSchedule> schedules)
        : movement_(movement), schedules_(schedules), ranks_(schedules.size()) {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            ranks_[rank].channels.resize(schedules[rank].channels.size());
            fill_start(static_cast<int>(rank));
        }
    }

    void run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
                for (std::size_t channel = 0; channel < ranks_[rank].channels.size(); ++channel) {
                    moved = advance(static_cast<int>(rank), channel) || moved;
                }
            }
        }
        check_all_over();
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) check_end(static_cast<int>(rank));
    }

  private:
    [[nodiscard]] RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] const std::vector<Round>& rounds(int rank, std::size_t channel) const {
        return schedules_[static_cast<std::size_t>(rank)].channels[channel].rounds;
    }
    [[nodiscard]] bool sums() const { return movement_.combine == Combine::sum; }

    void fill_start(int rank) {
        const auto index = static_cast<std::size_t>(rank);
        if (!sums() || rank < movement_.contributors) {
            SymbolicValue value;
            value.kind = sums() ? Kind::leaf : Kind::element;
            value.contributor = rank;
            value.dtype = movement_.dtype;
            fill(rank, movement_.from.buffer, movement_.from.pieces[index], value);
        }
        if (sums() && movement_.accumulate) {
            SymbolicValue value;
            value.kind = Kind::sum;
            value.on_top = true;
            fill(rank, movement_.to.buffer, movement_.to.pieces[index], value);
        }
    }

    void fill(int rank, BufferRole role, const std::vector<Piece>& pieces, const SymbolicValue& value) {
        const std::int64_t size = device::size_of(value.dtype);
        for (const Piece& piece : pieces) {
            if (piece.count == 0) continue;
            state(rank).of(role).write(
                {piece.local_offset * size, (piece.local_offset + piece.count) * size, piece.group_offset, value});
        }
    }

    bool advance(int rank, std::size_t channel) {
        bool moved = false;
        ChannelState& current = state(rank).channels[channel];
        while (current.round < rounds(rank, channel).size()) {
            if (!current.begun) {
                begin_round(rank, channel);
                moved = true;
            }
            if (current.messages_open > 0) break;
            ++current.round;
            current.begun = false;
            moved = true;
        }
        return moved;
    }

    void begin_round(int rank, std::size_t channel) {
        ChannelState& current = state(rank).channels[channel];
        current.begun = true;
        for (const TransferOperation& operation : rounds(rank, channel)[current.round].operations) {
            if (operation.kind == OperationKind::send || operation.kind == OperationKind::receive) {
                ++current.messages_open;
                post({rank, channel, &operation});
            } else {
                perform(rank, channel, operation);
            }
        }
    }

    void post(const PostedMessage& message) {
        const bool is_send = message.operation->kind == OperationKind::send;
        const int peer = message.operation->peer;
        PairQueue& pair = pairs_[is_send ? std::pair(message.rank, peer) : std::pair(peer, message.rank)];
        (is_send ? pair.sends : pair.receives).push_back(message);
        if (pair.sends.empty() || pair.receives.empty()) return;
        meet(pair.sends.front(), pair.receives.front());
        pair.sends.pop_front();
        pair.receives.pop_front();
    }

    void meet(const PostedMessage& send, const PostedMessage& receive) {
        const TransferOperation& from = *send.operation;
        const TransferOperation& to = *receive.operation;
        if (from.count != to.count || from.source_dtype != to.target_dtype) {
            fail(receive.rank, receive.channel, comm::describe(to) + " meets another message: " + comm::describe(from));
        }
        move(send.rank, from.buffer, from.offset, receive.rank, receive.channel, to);
        --state(send.rank).channels[send.channel].messages_open;
        --state(receive.rank).channels[receive.channel].messages_open;
    }

    void perform(int rank, std::size_t channel, const TransferOperation& operation) {
        if (operation.kind == OperationKind::add) {
            add(rank, channel, operation);
        } else {
            move(rank, operation.source_buffer, operation.source_offset, rank, channel, operation);
        }
    }

    // Copies symbolic values to where `target` writes; converting keeps the elements and changes their type.
    void move(int source_rank, BufferRole source, std::int64_t source_offset, int rank, std::size_t channel,
              const TransferOperation& target) {
        const std::int64_t source_size = device::size_of(target.source_dtype);
        const std::int64_t target_size = device::size_of(target.target_dtype);
        const std::int64_t source_begin = source_offset * source_size;
        const std::vector<SymbolicExtent> extents =
            state(source_rank).of(source).read(source_begin, source_begin + target.count * source_size);
        for (const SymbolicExtent& extent : extents) {
            if (extent.value.kind == Kind::unknown || extent.value.dtype != target.source_dtype) {
                fail(rank, channel,
                     comm::describe(target) + " brings values that nobody has written as " +
                         std::string(device::name(target.source_dtype)));
            }
            SymbolicExtent moved = extent;
            const std::int64_t base = target.offset * target_size;
            moved.begin = base + (extent.begin - source_begin) / source_size * target_size;
            moved.end = base + (extent.end - source_begin) / source_size * target_size;
            moved.value.dtype = target.target_dtype;
            state(rank).of(target.buffer).write(moved);
        }
    }

    void add(int rank, std::size_t channel, const TransferOperation& operation) {
        const std::int64_t source_size = device::size_of(operation.source_dtype);
        const std::int64_t source_begin = operation.source_offset * source_size;
        const std::int64_t target_size = device::size_of(operation.target_dtype);
        SymbolicMemory& memory = state(rank).of(operation.buffer);
        const std::vector<SymbolicExtent> leaves =
            state(rank).of(operation.source_buffer).read(source_begin, source_begin + operation.count * source_size);
        for (const SymbolicExtent& leaf : leaves) {
            const std::int64_t begin = (operation.offset + (leaf.begin - source_begin) / source_size) * target_size;
            const std::int64_t end = (operation.offset + (leaf.end - source_begin) / source_size) * target_size;
            for (SymbolicExtent sum : memory.read(begin, end)) {
                const std::int64_t group_offset = leaf.group_offset + (sum.begin - begin) / target_size;
                const int expected = leaves_in(sum.value);
                const bool fits = leaf.value.kind == Kind::leaf && leaf.value.dtype == operation.source_dtype &&
                                  expected >= 0 && leaf.value.contributor == expected &&
                                  group_offset == sum.group_offset;
                if (!fits) {
                    fail(rank, channel,
                         comm::describe(operation) + " adds " + describe(leaf.value) + " of group element " +
                             std::to_string(group_offset) + " to " + describe(sum.value) + " of group element " +
                             std::to_string(sum.group_offset));
                }
                sum.value.kind = Kind::sum;
                sum.value.contributor = 0;
                sum.value.leaves = expected + 1;
                memory.write(sum);
            }
        }
    }

    // How many leaves a sum holds; -1 for what no leaf may be added to. The first leaf, copied, is a sum of one.
    static int leaves_in(const SymbolicValue& value) {
        if (value.dtype != device::DType::float32) return -1;
        if (value.kind == Kind::sum) return value.leaves;
        return value.kind == Kind::leaf && value.contributor == 0 ? 1 : -1;
    }

    void check_all_over() {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            for (std::size_t channel = 0; channel < ranks_[rank].channels.size(); ++channel) {
                const ChannelState& current = ranks_[rank].channels[channel];
                if (current.round == rounds(static_cast<int>(rank), channel).size()) continue;
                fail(static_cast<int>(rank), channel,
                     "deadlock: " + waiting(static_cast<int>(rank), channel) + " never meets its other side");
            }
        }
    }

    [[nodiscard]] std::string waiting(int rank, std::size_t channel) const {
        for (const auto& [ranks, pair] : pairs_) {
            for (const auto* queue : {&pair.sends, &pair.receives}) {
                for (const PostedMessage& message : *queue) {
                    if (message.rank == rank && message.channel == channel) return comm::describe(*message.operation);
                }
            }
        }
        return "a message";
    }

    void check_end(int rank) {
        const device::DType dtype = sums() ? device::DType::float32 : movement_.dtype;
        const std::int64_t size = device::size_of(dtype);
        SymbolicValue wanted;
        wanted.kind = sums() ? Kind::sum : Kind::element;
        wanted.leaves = movement_.contributors;
        wanted.on_top = movement_.accumulate;
        for (const Piece& piece : movement_.to.pieces[static_cast<std::size_t>(rank)]) {
            const std::int64_t begin = piece.local_offset * size;
            for (const SymbolicExtent& extent :
                 state(rank).of(movement_.to.buffer).read(begin, begin + piece.count * size)) {
                const std::int64_t element = piece.group_offset + (extent.begin - begin) / size;
                const bool right = sums() ? leaves_in(extent.value) == movement_.contributors &&
                                                extent.value.on_top == movement_.accumulate
                                          : extent.value.kind == Kind::element && extent.value.dtype == dtype;
                if (right && extent.group_offset == element) continue;
                raise_violation(movement_, rank, 0, 0,
                                "at the end, the place of group element " + std::to_string(element) + " holds " +
                                    describe(extent.value) + " of group element " +
                                    std::to_string(extent.group_offset) + ", wanted " + describe(wanted));
            }
        }
    }

    [[noreturn]] void fail(int rank, std::size_t channel, const std::string& reason) {
        raise_violation(movement_, rank, channel, state(rank).channels[channel].round, reason);
    }

    const Movement& movement_;
    std::span<const TransferSchedule> schedules_;
    std::vector<RankState> ranks_;
    std::map<std::pair<int, int>, PairQueue> pairs_;  // (sender, receiver)
};

/// A broadcast of a schedule: where it stands, and what it is on every rank.
struct Broadcast {
    std::size_t channel, round;
    int root;
    std::int64_t bytes;
    bool operator==(const Broadcast&) const = default;
};

std::vector<Broadcast> broadcasts_of(const Movement& movement, int rank, const TransferSchedule& schedule) {
    std::vector<Broadcast> all;
    for (std::size_t channel = 0; channel < schedule.channels.size(); ++channel) {
        for (std::size_t round = 0; round < schedule.channels[channel].rounds.size(); ++round) {
            for (const TransferOperation& operation : schedule.channels[channel].rounds[round].operations) {
                if (operation.kind != OperationKind::broadcast) continue;
                const int receivers = operation.peer == rank ? movement.ranks() - 1 : 0;
                if (operation.receivers != receivers) {
                    raise_violation(movement, rank, channel, round,
                                    comm::describe(operation) + " has " + std::to_string(operation.receivers) +
                                        " receivers, wanted " + std::to_string(receivers));
                }
                all.push_back(
                    {channel, round, operation.peer, operation.count * device::size_of(operation.source_dtype)});
            }
        }
    }
    return all;
}

/// A broadcast is for all ranks, which name the same ones in the same order.
void check_broadcasts(const Movement& movement, std::span<const TransferSchedule> schedules) {
    const std::vector<Broadcast> first = broadcasts_of(movement, 0, schedules.front());
    for (int rank = 1; rank < movement.ranks(); ++rank) {
        if (broadcasts_of(movement, rank, schedules[static_cast<std::size_t>(rank)]) == first) continue;
        raise_violation(movement, rank, 0, 0, "its broadcasts are not those of rank 0, in their order");
    }
}

}  // namespace

void check_schedules(const Movement& movement, std::span<const TransferSchedule> schedules) {
    MFSDP_ASSERT(static_cast<int>(schedules.size()) == movement.ranks(), "every rank has one schedule to check");
    check_broadcasts(movement, schedules);
    std::vector<TransferSchedule> lowered;
    for (int rank = 0; rank < movement.ranks(); ++rank) {
        lowered.push_back(lower_broadcasts(schedules[static_cast<std::size_t>(rank)], rank));
        check_one_schedule(movement, rank, lowered.back());
    }
    Check(movement, lowered).run();
}

}  // namespace mfsdp::comm
