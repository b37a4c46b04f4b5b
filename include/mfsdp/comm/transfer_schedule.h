#pragma once

#include "mfsdp/device/dtype.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp::comm {

/// The memory that an operation of a schedule names; bound to addresses when the schedule is started.
enum class BufferRole : std::uint8_t { shard, gathered, gradient, accumulator, direction, scratch };
inline constexpr int kBufferRoles = 6;
[[nodiscard]] std::string_view name(BufferRole role);

enum class OperationKind : std::uint8_t { send, receive, copy, add, broadcast };

/// One operation. Offsets and counts are elements, offsets from the start of the named buffer.
struct TransferOperation {
    OperationKind kind = OperationKind::copy;
    /// send, and broadcast on its root: where from; receive, copy, add, and broadcast elsewhere: where to
    BufferRole buffer = BufferRole::shard;
    std::int64_t offset = 0;
    BufferRole source_buffer = BufferRole::shard;  ///< copy, add only
    std::int64_t source_offset = 0;
    std::int64_t count = 0;
    device::DType source_dtype = device::DType::float32;
    device::DType target_dtype = device::DType::float32;
    int peer = -1;      ///< send, receive: the other rank; broadcast: its root
    int receivers = 0;  ///< broadcast, on its root: the number of other ranks; elsewhere 0

    friend bool operator==(const TransferOperation&, const TransferOperation&) = default;
};

/// Operations of a round run at once and in any order; the round ends when they have ended. There is no barrier:
/// other ranks' rounds do not matter.
struct Round {
    std::vector<TransferOperation> operations;
};

/// A sequence of rounds. Channels of a schedule are independent of each other; all messages to one peer stand in one
/// channel, and so do all from one peer, since messages of a pair match in the order of posting.
struct Channel {
    std::vector<Round> rounds;
};

/// What one rank does to move one group: planned once, executed many times.
struct TransferSchedule {
    std::string name;  ///< "gather block 3", for errors and traces
    std::vector<Channel> channels;
    std::int64_t scratch_bytes = 0;

    /// A broadcast counts as if its root sent to each of the others.
    [[nodiscard]] std::int64_t bytes_sent() const;
    [[nodiscard]] std::int64_t bytes_received() const;
    [[nodiscard]] bool empty() const;
};

/// The same with each broadcast as a send of its root to every other rank, for whoever knows messages between two ranks
/// only. `rank` is that of the schedule.
[[nodiscard]] TransferSchedule lower_broadcasts(const TransferSchedule& schedule, int rank);

/// A run of elements of a group: where it lies on a rank, and where in the group. Pieces of a rank are sorted by
/// group_offset and do not overlap.
struct Piece {
    std::int64_t local_offset = 0;  ///< elements from the start of the rank's buffer
    std::int64_t group_offset = 0;  ///< elements from the start of the group's full layout
    std::int64_t count = 0;
    friend bool operator==(const Piece&, const Piece&) = default;
};

/// What each rank holds (or must hold) of a group. pieces[r] is rank r's.
struct Arrangement {
    BufferRole buffer = BufferRole::shard;
    std::vector<std::vector<Piece>> pieces;
};

/// Joins neighbours that touch in both coordinates; the order of plans and messages follows from the result.
[[nodiscard]] std::vector<Piece> coalesce(std::vector<Piece> pieces);

enum class Combine : std::uint8_t { copy, sum };

/// redistribute(from, to, copy | sum): what must be where afterwards, without saying how.
///
/// copy  every element of `to` is filled from a rank that holds it in `from`: the lowest (a rank that holds it itself
///       copies locally; elements that need no copy at all are left out of `to` by whoever makes the movement)
/// sum   ranks 0 .. contributors-1 hold a leaf in `from`; every element of `to` becomes leaf_0 + leaf_1 + ... in this
///       order of additions in float32, on top of its present value if `accumulate`, else from nothing: the first leaf
///       is copied, not added to 0
struct Movement {
    std::string name;
    Combine combine = Combine::copy;
    device::DType dtype = device::DType::float32;  ///< on the wire and in `from`; sums are float32 in `to`
    Arrangement from;
    Arrangement to;
    int contributors = 0;
    bool accumulate = false;

    [[nodiscard]] int ranks() const { return static_cast<int>(from.pieces.size()); }
};

struct BuildOptions {
    std::int64_t chunk_bytes = 4194304;  ///< largest message and unit of pipelining
};

}  // namespace mfsdp::comm
