#pragma once

#include "mfsdp/comm/transfer_schedule.h"

#include <cstdint>
#include <vector>

namespace mfsdp::comm {

// What the builders of the ordered sum have in common.

/// InternalError unless the movement is a sum of 1 to N leaves.
void check_sum(const Movement& movement);

/// The parts in which an owner's sum is made, at most `chunk` elements each: every one lies in one piece of every
/// contributor's leaf. Sender and owner call this with the same arguments, and so agree on the messages.
[[nodiscard]] std::vector<Piece> sum_parts(const Movement& movement, int owner, std::int64_t chunk);

/// Where a part lies in a contributor's leaf (coalesced pieces); InternalError if it does not.
[[nodiscard]] std::int64_t leaf_offset(const Movement& movement, const std::vector<Piece>& leaf, int contributor,
                                       const Piece& part);

/// Adds a leaf's part to the owner's sum in float32; `first`: the leaf is the first of a fresh sum and is copied.
[[nodiscard]] TransferOperation make_addition(const Movement& movement, const Piece& part, bool first,
                                              BufferRole source, std::int64_t source_offset);

}  // namespace mfsdp::comm
