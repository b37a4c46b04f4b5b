#pragma once

#include "mfsdp/comm/transfer_schedule.h"

#include <string>

namespace mfsdp::comm {

/// Checks of one rank's schedule that need no other rank: counts, offsets, peers and types make sense; what it writes
/// lies in what the movement wants there or in scratch; operations of one round, and of different channels, do not
/// touch what another of them writes; all messages to one peer stand in one channel, and all from one.
/// InternalError with rank, channel, round and reason.
void check_one_schedule(const Movement& movement, int rank, const TransferSchedule& schedule);

/// "schedule check: 'gather block 3': rank 2, channel 0, round 7: reason".
[[noreturn]] void raise_violation(const Movement& movement, int rank, std::size_t channel, std::size_t round,
                                  const std::string& reason);

/// "receive of 12 elements from rank 3 at gathered + 40".
[[nodiscard]] std::string describe(const TransferOperation& operation);

}  // namespace mfsdp::comm
