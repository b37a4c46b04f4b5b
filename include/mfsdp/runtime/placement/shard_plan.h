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
/// the planner and nowhere else. A frozen parameter is never reduced nor stepped: its last two placements are empty.
struct MatrixShard {
    std::int64_t parameter = 0;  ///< index into ModelSpec::parameters
    optim::Role role = optim::Role::tail;
    comm::Placement at_rest;
    comm::Placement gradient;
    comm::Placement optimizer;

    [[nodiscard]] bool frozen() const { return gradient.segments.empty(); }
};

/// Rows of one parameter inside a transfer group: the whole parameter, or one panel of a vocabulary table.
struct GroupSlot {
    std::int64_t parameter = 0;  ///< index into ModelSpec::parameters
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;
};

/// What is gathered and reduced together: a unit's ordinary parameters, or one row panel of a vocabulary table. A panel
/// of a tied table has two users.
struct TransferGroup {
    std::string name;
    std::vector<GroupSlot> slots;
    std::vector<std::int64_t> users;  ///< the units that use it, in forward order
};

/// The groups of one unit.
struct UnitGroups {
    std::int64_t parameters = -1;      ///< of its ordinary parameters; -1: it has none
    std::vector<std::int64_t> panels;  ///< of its vocabulary table, panel by panel; empty: it has none
};

/// Where everything lives: a pure function of (model, routing, mesh, strategy, policy, optimizer cost), the same on
/// every rank.
struct ShardPlan {
    int ranks = 1;
    std::vector<MatrixShard> shards;      ///< by parameter index
    std::vector<TransferGroup> groups;    ///< in order of first use
    std::vector<UnitGroups> unit_groups;  ///< by unit

    /// hash64 of the placements under the parameters' full names, 16 hex digits: ranks compare it at start.
    [[nodiscard]] std::string hash(const model::ModelSpec& spec) const;
};

}  // namespace mfsdp::runtime
