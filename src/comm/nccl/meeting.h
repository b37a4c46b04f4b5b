#pragma once

#include "mfsdp/comm/communicator.h"

#include <array>

#include <nccl.h>

namespace mfsdp::comm::nccl {

/// The names under which all ranks meet in NCCL, one for each lane: made by rank 0, the same on every rank. Every rank
/// calls it; CommunicationError on all of them if NCCL gave rank 0 none. Blocks.
[[nodiscard]] std::array<ncclUniqueId, kLanes> exchange_ids(Communicator& communicator);

}  // namespace mfsdp::comm::nccl
