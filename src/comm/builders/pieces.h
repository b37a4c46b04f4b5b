#pragma once

#include "mfsdp/comm/transfer_schedule.h"

#include <cstdint>
#include <span>
#include <vector>

namespace mfsdp::comm {

/// A run of elements that lies in one piece on the source and in one piece on the target.
struct Run {
    std::int64_t source_offset = 0;
    std::int64_t target_offset = 0;
    std::int64_t group_offset = 0;
    std::int64_t count = 0;
};

/// Checks what every builder relies on (InternalError): pieces sorted by group offset and disjoint on each rank, counts
/// and offsets not negative, as many ranks in `to` as in `from`, the calling rank among them.
void check_movement(const Movement& movement, int rank);

/// Elements of the largest message; at least one.
[[nodiscard]] std::int64_t chunk_elements(const Movement& movement, const BuildOptions& options);

/// The messages from a rank that holds `source` to one that wants `target`, in order, at most `chunk` elements each.
/// Both sides of a pair call this function with the same arguments: it alone decides what a pair's messages are.
[[nodiscard]] std::vector<Run> messages(std::span<const Piece> source, std::span<const Piece> target,
                                        std::int64_t chunk);

/// `pieces` without the group elements of `minus`.
[[nodiscard]] std::vector<Piece> subtract(std::span<const Piece> pieces, std::span<const Piece> minus);

/// `pieces` cut at the group offsets `cuts` (sorted) and then into parts of at most `chunk` elements.
[[nodiscard]] std::vector<Piece> split(std::span<const Piece> pieces, std::span<const std::int64_t> cuts,
                                       std::int64_t chunk);

/// Where the `count` group elements from `group_offset` on lie; -1 if not all of them lie in one piece.
[[nodiscard]] std::int64_t local_offset_of(std::span<const Piece> pieces, std::int64_t group_offset,
                                           std::int64_t count);

[[nodiscard]] std::int64_t total_count(std::span<const Piece> pieces);

/// Makes operations of one movement on one rank.
[[nodiscard]] TransferOperation make_send(const Movement& movement, int peer, BufferRole buffer, std::int64_t offset,
                                          std::int64_t count);
[[nodiscard]] TransferOperation make_receive(const Movement& movement, int peer, BufferRole buffer, std::int64_t offset,
                                             std::int64_t count);

/// Local copies of what the rank itself holds of what it wants.
void append_own_copies(const Movement& movement, int rank, std::int64_t chunk, Round& round);

/// Removes rounds and channels at the end that hold no operation, and empty rounds between others.
void drop_empty_rounds(TransferSchedule& schedule);

}  // namespace mfsdp::comm
