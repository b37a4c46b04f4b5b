#pragma once

#include "mfsdp/runtime/train/rehearsal.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace mfsdp::runtime {

// What fits into a memory: answers found by rehearsing, not by formulas.

/// Rehearsals of all ranks, by rank. They are independent of each other and run on all cores.
[[nodiscard]] std::vector<Rehearsal> rehearse_all(const RunPlan& run);

/// A run on `ranks` ranks of one node with its transfers chosen; parallel.mesh.shard becomes ranks / replicate.
[[nodiscard]] RunPlan plan_for_ranks(TrainConfig config, std::int64_t ranks);

/// Whether every rank's rehearsed memory is within a limit.
struct Fit {
    std::int64_t limit_bytes = 0;
    std::int64_t largest_bytes = 0;  ///< of the rank that needs most
    int largest_rank = 0;
    std::int64_t ranks_beyond = 0;  ///< that need more than the limit
    [[nodiscard]] bool fits() const { return ranks_beyond == 0; }
};
/// Compares the total memory of every rank, by rank, with the limit; at least one rank. Of equals the lowest is
/// largest.
[[nodiscard]] Fit fit(const std::vector<Rehearsal>& ranks, std::int64_t limit_bytes);

struct MicroBatchFit {
    std::int64_t micro_batch_size = 0;
    Fit fit;
};
/// The largest train.micro_batch_size with which every rank fits. The global batch stays, so only its divisors are
/// asked; empty if not even 1 fits.
[[nodiscard]] std::optional<MicroBatchFit> largest_micro_batch(const TrainConfig& config, std::int64_t ranks,
                                                               std::int64_t limit_bytes);

struct RanksFit {
    std::int64_t ranks = 0;
    Fit fit;
};
/// The fewest ranks on which every rank fits, up to `most_ranks`: found by doubling, then by halving the last doubling,
/// so that `ranks` fit and the next smaller number of ranks does not. Empty if there is none.
[[nodiscard]] std::optional<RanksFit> fewest_ranks(const TrainConfig& config, std::int64_t limit_bytes,
                                                   std::int64_t most_ranks = 1024);

}  // namespace mfsdp::runtime
