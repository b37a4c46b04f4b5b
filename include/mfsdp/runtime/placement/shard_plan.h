#pragma once

#include "mfsdp/comm/placement.h"
#include "mfsdp/model/parameter_spec.h"
#include "mfsdp/optim/routing.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::runtime {

/// One parameter's role and where it lives: `at_rest` between uses, `gradient` where the sum lands (masters and element
/// states lie there too), `optimizer` where whole-matrix work happens. A strategy is a choice of the three, made in
/// the planner and nowhere else.
struct MatrixShard {
    std::int64_t parameter = 0;  ///< index into ModelSpec::parameters
    optim::Role role = optim::Role::tail;
    comm::Placement at_rest;
    comm::Placement gradient;
    comm::Placement optimizer;
};

/// What is gathered and reduced together. A unit's parameters are one group; a parameter used by two units (a tied
/// head) is a group of its own.
struct TransferGroup {
    std::string name;
    std::vector<std::int64_t> parameters;  ///< indices into ModelSpec::parameters
    std::vector<std::int64_t> users;       ///< the units that use it, in forward order
};

/// Where everything lives: a pure function of (model, routing, mesh, strategy, policy, optimizer cost), the same on
/// every rank.
struct ShardPlan {
    int ranks = 1;
    std::vector<MatrixShard> shards;                     ///< by parameter index
    std::vector<TransferGroup> groups;                   ///< in order of first use
    std::vector<std::vector<std::int64_t>> unit_groups;  ///< groups of each unit, in order

    /// hash64 of the placements under the parameters' full names, 16 hex digits: ranks compare it at start.
    [[nodiscard]] std::string hash(const model::ModelSpec& spec) const;
};

}  // namespace mfsdp::runtime
