#pragma once

#include "mfsdp/comm/executor.h"
#include "mfsdp/device/memory.h"
#include "mfsdp/runtime/train/run_plan.h"

#include <array>
#include <cstdint>

namespace mfsdp::runtime {

/// What one step of one rank takes, found by running the real step loop on the counting device and a counting
/// transport. Memory, bytes and FLOPs are exact; seconds are a model with peers taken as ready.
struct Rehearsal {
    std::array<std::int64_t, device::kMemoryCategories> memory{};  ///< peak by category
    PoolSizes pools;
    std::int64_t peak_gathered_bytes = 0;    ///< of weights, without what the pool adds
    comm::TransferTotals transfers;          ///< of one step, the publish of new weights included
    std::int64_t optimizer_bytes_sent = 0;   ///< the part of it that moves around the optimizer step
    std::int64_t model_flops = 0;            ///< forward and backward
    std::int64_t optimizer_flops = 0;        ///< mean over the steps of a long run
    std::int64_t optimizer_worst_flops = 0;  ///< of the step with the most refreshes
    double step_seconds = 0.0;

    [[nodiscard]] std::int64_t total_memory() const;
};

/// One step of `rank` on the counting device, with an evaluation, a sample and the health of matrices where the run has
/// them. The transfers of `run` are chosen (choose_transfers) or are chosen anew here; independent of other ranks.
[[nodiscard]] Rehearsal rehearse(const RunPlan& run, int rank);

/// Bytes of this machine's memory.
[[nodiscard]] std::int64_t machine_memory();

/// ConfigError, with the table by category, if `ranks_on_node` ranks like this one need more than the machine has.
void require_memory(const Rehearsal& rehearsal, std::int64_t ranks_on_node);

}  // namespace mfsdp::runtime
