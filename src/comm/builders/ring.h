#pragma once

#include "mfsdp/comm/transfer_schedule.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace mfsdp::comm {

// What gathers have in common in which every rank wants everything.

/// Whether the ring serves a movement: a gather, each element held by one rank, every rank wanting all that it lacks.
[[nodiscard]] bool ring_applies(const Movement& movement);

/// No rank wants anything: what is replicated is not gathered.
[[nodiscard]] bool nothing_wanted(const Movement& movement);

/// ConfigError that names the gather unless the ring serves the movement.
void require_ring(const Movement& movement, std::string_view gather);

/// Group offsets at which any rank's layout breaks, sorted: between two of them a chunk lies in one piece on every
/// rank.
[[nodiscard]] std::vector<std::int64_t> layout_cuts(const Movement& movement);

/// Where a chunk cut there lies in a rank's coalesced pieces.
[[nodiscard]] std::int64_t place_of(const std::vector<Piece>& pieces, const Piece& chunk);

}  // namespace mfsdp::comm
