#include "schedule_conflicts.h"

#include "mfsdp/base/error.h"
#include "mfsdp/comm/communicator.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace mfsdp::comm {

namespace {

/// Bytes that an operation touches, and from where.
struct Access {
    BufferRole buffer;
    std::int64_t begin;
    std::int64_t end;
    bool writes;
    std::size_t channel;
    std::size_t round;
};

Access access(BufferRole buffer, std::int64_t offset, const TransferOperation& operation, device::DType dtype,
              bool writes) {
    const std::int64_t size = device::size_of(dtype);
    return {buffer, offset * size, (offset + operation.count) * size, writes, 0, 0};
}

std::vector<Access> accesses_of(const TransferOperation& operation) {
    if (operation.kind == OperationKind::send) {
        return {access(operation.buffer, operation.offset, operation, operation.source_dtype, false)};
    }
    std::vector<Access> all{access(operation.buffer, operation.offset, operation, operation.target_dtype, true)};
    if (operation.kind != OperationKind::receive) {
        all.push_back(
            access(operation.source_buffer, operation.source_offset, operation, operation.source_dtype, false));
    }
    return all;
}

class OneSchedule {
  public:
    OneSchedule(const Movement& movement, int rank, const TransferSchedule& schedule)
        : movement_(movement), rank_(rank), schedule_(schedule) {
        const device::DType dtype = movement.combine == Combine::sum ? device::DType::float32 : movement.dtype;
        for (const Piece& piece : movement.to.pieces[static_cast<std::size_t>(rank)]) {
            const std::int64_t size = device::size_of(dtype);
            if (piece.count == 0) continue;
            wanted_.emplace_back(piece.local_offset * size, (piece.local_offset + piece.count) * size);
        }
        std::sort(wanted_.begin(), wanted_.end());
        for (std::size_t i = wanted_.size(); i-- > 1;) {
            if (wanted_[i - 1].second != wanted_[i].first) continue;
            wanted_[i - 1].second = wanted_[i].second;
            wanted_.erase(wanted_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }

    void check() {
        for (channel_ = 0; channel_ < schedule_.channels.size(); ++channel_) {
            const std::vector<Round>& rounds = schedule_.channels[channel_].rounds;
            for (round_ = 0; round_ < rounds.size(); ++round_) {
                for (const TransferOperation& operation : rounds[round_].operations) check_operation(operation);
            }
        }
        check_conflicts();
    }

  private:
    [[noreturn]] void fail(const std::string& reason) const {
        raise_violation(movement_, rank_, channel_, round_, reason);
    }

    void check_operation(const TransferOperation& operation) {
        if (operation.count <= 0 || operation.offset < 0 || operation.source_offset < 0) {
            fail(describe(operation) + " has no elements or a negative offset");
        }
        switch (operation.kind) {
            case OperationKind::send:
            case OperationKind::receive:
                check_message(operation);
                break;
            case OperationKind::add:
                if (operation.target_dtype != device::DType::float32) fail(describe(operation) + " is not in float32");
                break;
            case OperationKind::copy:
                break;
            case OperationKind::broadcast:
                MFSDP_ASSERT(false, "broadcasts are lowered before schedules are checked");
                break;
        }
        for (const Access& touched : accesses_of(operation)) check_bounds(operation, touched);
    }

    void check_message(const TransferOperation& operation) {
        if (operation.peer < 0 || operation.peer >= movement_.ranks() || operation.peer == rank_) {
            fail(describe(operation) + " has no other rank as its peer");
        }
        if (operation.source_dtype != operation.target_dtype) fail(describe(operation) + " changes the type");
        const std::int64_t bytes = operation.count * device::size_of(operation.source_dtype);
        if (bytes > kMaxMessageBytes) fail(describe(operation) + " is longer than 2^30 bytes");
        const auto [first, is_new] =
            channel_of_peer_.try_emplace({operation.kind == OperationKind::send, operation.peer}, channel_);
        if (!is_new && first->second != channel_) {
            fail(describe(operation) + ": messages of one pair stand in channel " + std::to_string(first->second) +
                 " too, so their order is open");
        }
    }

    void check_bounds(const TransferOperation& operation, const Access& touched) {
        if (touched.buffer == BufferRole::scratch) {
            if (touched.end > schedule_.scratch_bytes) fail(describe(operation) + " lies beyond the scratch");
        } else if (touched.writes) {
            const auto inside = [&](const std::pair<std::int64_t, std::int64_t>& wanted) {
                return wanted.first <= touched.begin && touched.end <= wanted.second;
            };
            if (touched.buffer != movement_.to.buffer || std::none_of(wanted_.begin(), wanted_.end(), inside)) {
                fail(describe(operation) + " writes what the movement does not fill");
            }
        }
        accesses_.push_back(touched);
        accesses_.back().channel = channel_;
        accesses_.back().round = round_;
    }

    // Two accesses conflict if they overlap, one writes, and they may run at once: same round of a channel, or
    // different channels; a copy must not overlap its own source either. A sweep by address finds them; only neighbours
    // that overlap are compared.
    void check_conflicts() {
        std::sort(accesses_.begin(), accesses_.end(), [](const Access& a, const Access& b) {
            return std::pair(a.buffer, a.begin) < std::pair(b.buffer, b.begin);
        });
        std::vector<const Access*> open;
        for (const Access& touched : accesses_) {
            std::erase_if(open,
                          [&](const Access* a) { return a->buffer != touched.buffer || a->end <= touched.begin; });
            for (const Access* other : open) {
                const bool at_once = other->channel != touched.channel || other->round == touched.round;
                if (!at_once || (!other->writes && !touched.writes)) continue;
                channel_ = touched.channel;
                round_ = touched.round;
                fail("two operations that run at once use the same " + std::string(name(touched.buffer)) +
                     " bytes from " + std::to_string(touched.begin) + " on (the other in channel " +
                     std::to_string(other->channel) + ", round " + std::to_string(other->round) + ")");
            }
            open.push_back(&touched);
        }
    }

    const Movement& movement_;
    int rank_;
    const TransferSchedule& schedule_;
    std::vector<std::pair<std::int64_t, std::int64_t>> wanted_;  // byte ranges of the target, joined
    std::map<std::pair<bool, int>, std::size_t> channel_of_peer_;
    std::vector<Access> accesses_;
    std::size_t channel_ = 0;
    std::size_t round_ = 0;
};

}  // namespace

void check_one_schedule(const Movement& movement, int rank, const TransferSchedule& schedule) {
    OneSchedule(movement, rank, schedule).check();
}

void raise_violation(const Movement& movement, int rank, std::size_t channel, std::size_t round,
                     const std::string& reason) {
    throw InternalError("schedule check: '" + movement.name + "': rank " + std::to_string(rank) + ", channel " +
                        std::to_string(channel) + ", round " + std::to_string(round) + ": " + reason);
}

std::string describe(const TransferOperation& operation) {
    const auto place = [](BufferRole role, std::int64_t offset) {
        return std::string(name(role)) + " + " + std::to_string(offset);
    };
    const std::string count = std::to_string(operation.count) + " elements";
    const std::string at = place(operation.buffer, operation.offset);
    switch (operation.kind) {
        case OperationKind::send:
            return "send of " + count + " to rank " + std::to_string(operation.peer) + " from " + at;
        case OperationKind::receive:
            return "receive of " + count + " from rank " + std::to_string(operation.peer) + " at " + at;
        case OperationKind::copy:
            return "copy of " + count + " from " + place(operation.source_buffer, operation.source_offset) + " to " +
                   at;
        case OperationKind::add:
            return "add of " + count + " from " + place(operation.source_buffer, operation.source_offset) + " to " + at;
        case OperationKind::broadcast:
            break;
    }
    return "broadcast of " + count;
}

}  // namespace mfsdp::comm
