#pragma once

#include "mfsdp/runtime/config/train_config.h"
#include "mfsdp/runtime/placement/planner.h"
#include "mfsdp/runtime/train/engine.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace mfsdp::runtime {

/// Everything about a run that follows from the configuration and the ranks alone, the same on every rank.
struct RunPlan {
    model::ModelSpec spec;
    std::vector<optim::Role> roles;
    std::vector<bool> frozen;  ///< by parameter index: not trained
    std::vector<OwnershipCost> costs;
    comm::Mesh mesh;
    ShardPlan plan;
    EngineOptions engine;
};

/// Plans a run on the given ranks. ConfigError if the mesh does not fit them or the strategy is not in this version.
[[nodiscard]] RunPlan make_run_plan(const TrainConfig& config, std::vector<int> node_of_rank);

/// What a rank's share of optimizer step t takes by kind of work, long after the start: its matrices, those whose turn
/// it is with a refresh, and AdamW on its rows and tails.
[[nodiscard]] optim::StepCost optimizer_cost(const RunPlan& run, int rank, std::int64_t step);

/// Chooses the builders of all transfers (engine.store.algorithms), so that rehearsals and the engine share the choice.
void choose_transfers(RunPlan& run);

/// max / mean over ranks of what each owns, by make_shard_plan's costs.
struct Balance {
    std::int64_t largest_bytes = 0, largest_flops = 0;
    double mean_bytes = 0.0, mean_flops = 0.0;
};
[[nodiscard]] Balance balance(const std::vector<RankLoad>& loads);

}  // namespace mfsdp::runtime
