#pragma once

#include "mfsdp/comm/communicator.h"
#include "mfsdp/comm/transfer_schedule.h"

#include <span>
#include <string>
#include <vector>

namespace mfsdp::comm {

/// Executes the schedules of all ranks symbolically with rendezvous semantics (a send ends only with its receive) and
/// proves that each rank ends with exactly the elements it must have, each leaf added exactly once and in order, that
/// operations of one round do not conflict, that both sides of every message agree, and that nothing deadlocks.
/// Throws InternalError with the rank, channel, round and reason of the first violation.
void check_schedules(const Movement& movement, std::span<const TransferSchedule> schedules);

/// Hash of the inputs that decide plans and schedules; differs between ranks only by mistake.
struct StartupFacts {
    std::string label;  ///< "configuration", "plan", "instruction set", ...
    std::string value;  ///< compared as text (a hash or a name)
};

/// Every rank gives the same list of facts; ConfigError on all ranks, naming the fact, the two ranks and the two
/// values, if any differs.
void compare_startup_facts(Communicator& communicator, std::span<const StartupFacts> facts);

/// Each pair of ranks compares its list of (bytes, order) over all schedules, given in the same order on all ranks;
/// InternalError on all ranks, naming the pair, otherwise.
void compare_message_lists(Communicator& communicator, std::span<const TransferSchedule* const> schedules);

}  // namespace mfsdp::comm
