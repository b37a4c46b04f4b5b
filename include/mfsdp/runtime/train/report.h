#pragma once

#include "mfsdp/runtime/train/rehearsal.h"

#include <string>
#include <vector>

namespace mfsdp::runtime {

// Texts and tables about a planned run, for people.

/// "12.3 MiB"
[[nodiscard]] std::string bytes_text(std::int64_t bytes);
/// One line: model, ranks, strategy, optimizer, batch.
[[nodiscard]] std::string describe_run(const RunPlan& run, const TrainConfig& config, int threads,
                                       const std::string& device);
/// Memory of one rank by category, as rehearsed.
[[nodiscard]] std::string describe_memory(const Rehearsal& rehearsal);
/// For a closer look at a start: hashes, then what every group moves and how, pools, link costs and timeouts, a line
/// each.
[[nodiscard]] std::string describe_start(const RunPlan& run, const TrainConfig& config, const Rehearsal& rehearsal,
                                         int rank);
/// What is lost when ranks do not divide the micro-batches: `idle` of `slots` rank turns of a step have none.
[[nodiscard]] std::string describe_idle(std::int64_t idle, std::int64_t slots);

/// Owner of every matrix and tail: one line per parameter that is not spread or replicated.
[[nodiscard]] std::string owner_table(const RunPlan& run);
/// Per rank: memory by category, bytes sent and received, optimizer FLOPs; then maximum / mean of each.
[[nodiscard]] std::string rank_table(const std::vector<Rehearsal>& ranks);
/// max / mean of owned bytes and FLOPs, from the plan alone.
[[nodiscard]] std::string balance_line(const Balance& balance);
/// Transfer algorithm of every group.
[[nodiscard]] std::string algorithm_table(const RunPlan& run);

}  // namespace mfsdp::runtime
