#pragma once

#include "mfsdp/comm/transfer_schedule.h"

namespace mfsdp::comm {

/// Whether the ring serves a movement: a gather, each element held by one rank, every rank wanting all that it lacks.
[[nodiscard]] bool ring_applies(const Movement& movement);

}  // namespace mfsdp::comm
