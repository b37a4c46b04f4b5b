#pragma once

#include "mfsdp/comm/transfer_schedule.h"

#include <span>

namespace mfsdp::comm {

/// Executes the schedules of all ranks symbolically with rendezvous semantics (a send ends only with its receive) and
/// proves that each rank ends with exactly the elements it must have, each leaf added exactly once and in order, that
/// operations of one round do not conflict, that both sides of every message agree, and that nothing deadlocks.
/// Throws InternalError with the rank, channel, round and reason of the first violation.
void check_schedules(const Movement& movement, std::span<const TransferSchedule> schedules);

}  // namespace mfsdp::comm
