#pragma once

#include "mfsdp/comm/communicator.h"
#include "mfsdp/comm/transfer_schedule.h"

#include <span>
#include <string>

namespace mfsdp::comm {

/// Something that all ranks must have alike; it differs only by mistake.
struct StartupFacts {
    std::string label;  ///< "configuration", "plan", "instruction set", ...
    std::string value;  ///< compared as text (a hash or a name)
};

/// Every rank gives the same list of facts; ConfigError on all ranks, naming the fact, the two ranks and the two
/// values, if any differs. Blocks.
void compare_startup_facts(Communicator& communicator, std::span<const StartupFacts> facts);

/// Each pair of ranks compares its list of (bytes, order) over all schedules, given in the same order on all ranks;
/// InternalError on all ranks, naming the pair, otherwise. Blocks.
void compare_message_lists(Communicator& communicator, std::span<const TransferSchedule* const> schedules);

}  // namespace mfsdp::comm
