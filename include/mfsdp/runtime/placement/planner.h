#pragma once

#include "mfsdp/comm/placement.h"
#include "mfsdp/runtime/config/train_config.h"
#include "mfsdp/runtime/placement/shard_plan.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace mfsdp::runtime {

/// What one parameter costs the rank that owns it.
struct OwnershipCost {
    std::int64_t bytes = 0;  ///< resident: weight, master, gradient and optimizer state
    std::int64_t flops = 0;  ///< of one optimizer step, kinds of work weighed: optim::StepCost::weighed_flops
};

struct PlannerInput {
    const model::ModelSpec& spec;
    const std::vector<optim::Role>& roles;    ///< by parameter index
    const std::vector<OwnershipCost>& costs;  ///< by parameter index
    const comm::Mesh& mesh;
    Strategy strategy = Strategy::matrix_fsdp;
    PlannerConfig policy;
    std::vector<bool> frozen{};  ///< by parameter index; empty: none is
};

/// Owners are chosen longest first over all units: the item with the greatest load goes to the rank whose load stays
/// smallest. Ties break by (load, bytes of this unit already on the rank, and on its node, rank, name). Items are the
/// matrices and each unit's tail; evenly spread rows do not count.
[[nodiscard]] ShardPlan make_shard_plan(const PlannerInput& input);

/// Sums over what each rank owns (gradient placement), for balance tables: max / mean over ranks.
struct RankLoad {
    std::int64_t bytes = 0;
    std::int64_t flops = 0;
};
[[nodiscard]] std::vector<RankLoad> rank_loads(const ShardPlan& plan, const PlannerInput& input);

}  // namespace mfsdp::runtime
