#include "mfsdp/runtime/placement/planner.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

namespace mfsdp::runtime {

namespace {

using comm::Placement;
using optim::Role;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// What is given to one owner as a whole: a matrix, or the packed tail of a unit.
struct Item {
    std::string name;
    std::int64_t unit = 0;  // the first unit that uses it
    std::vector<std::int64_t> parameters;
    OwnershipCost cost;
};

std::vector<std::int64_t> first_unit(const model::ModelSpec& spec) {
    std::vector<std::int64_t> result(spec.parameters.size(), -1);
    for (std::size_t unit = 0; unit < spec.units.size(); ++unit) {
        for (const std::int64_t parameter : spec.units[unit].parameters) {
            if (result[at(parameter)] < 0) result[at(parameter)] = static_cast<std::int64_t>(unit);
        }
    }
    return result;
}

std::vector<Item> make_items(const PlannerInput& input) {
    const std::vector<std::int64_t> unit_of = first_unit(input.spec);
    std::vector<Item> items;
    std::vector<Item> tails(input.spec.units.size());
    for (std::size_t i = 0; i < input.spec.parameters.size(); ++i) {
        const OwnershipCost& cost = input.costs[i];
        const auto parameter = static_cast<std::int64_t>(i);
        if (input.roles[i] == Role::matrix) {
            items.push_back({input.spec.parameters[i].name, unit_of[i], {parameter}, cost});
        } else if (input.roles[i] == Role::tail) {
            Item& tail = tails[at(unit_of[i])];
            tail.unit = unit_of[i];
            tail.name = input.spec.units[at(unit_of[i])].name + " tail";
            tail.parameters.push_back(parameter);
            tail.cost.bytes += cost.bytes;
            tail.cost.flops += cost.flops;
        }
    }
    for (Item& tail : tails) {
        if (!tail.parameters.empty()) items.push_back(std::move(tail));
    }
    return items;
}

/// The load that a policy balances, of a rank or of an item.
class LoadMeasure {
  public:
    LoadMeasure(const PlannerInput& input, const std::vector<Item>& items) : policy_(input.policy.policy) {
        OwnershipCost total;
        for (const Item& item : items) {
            total.bytes += item.cost.bytes;
            total.flops += item.cost.flops;
        }
        const double ranks = input.mesh.ranks();
        if (total.bytes > 0) bytes_factor_ = input.policy.bytes_weight * ranks / static_cast<double>(total.bytes);
        if (total.flops > 0) flops_factor_ = input.policy.flops_weight * ranks / static_cast<double>(total.flops);
    }

    [[nodiscard]] double operator()(const OwnershipCost& cost) const {
        const auto bytes = static_cast<double>(cost.bytes);
        const auto flops = static_cast<double>(cost.flops);
        switch (policy_) {
            case PlannerPolicy::bytes:
                return bytes;
            case PlannerPolicy::flops:
                return flops;
            case PlannerPolicy::balanced:
                return std::max(bytes * bytes_factor_, flops * flops_factor_);
            case PlannerPolicy::round_robin:
                return 0.0;
        }
        return 0.0;
    }

  private:
    PlannerPolicy policy_;
    double bytes_factor_ = 0.0;
    double flops_factor_ = 0.0;
};

/// The owner of each item, longest first.
std::vector<int> assign_owners(const PlannerInput& input, const std::vector<Item>& items) {
    const int ranks = input.mesh.ranks();
    std::vector<int> owners(items.size(), 0);
    if (input.policy.policy == PlannerPolicy::round_robin) {
        for (std::size_t i = 0; i < items.size(); ++i) owners[i] = static_cast<int>(i % at(ranks));
        return owners;
    }
    const LoadMeasure load(input, items);
    std::vector<std::size_t> order(items.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        const double load_a = load(items[a].cost), load_b = load(items[b].cost);
        return load_a != load_b ? load_a > load_b : items[a].name < items[b].name;
    });
    const auto nodes = at(input.mesh.nodes());
    std::vector<OwnershipCost> rank_cost(at(ranks));
    std::vector<std::int64_t> unit_on_rank(input.spec.units.size() * at(ranks), 0);
    std::vector<std::int64_t> unit_on_node(input.spec.units.size() * nodes, 0);
    for (const std::size_t i : order) {
        const Item& item = items[i];
        std::int64_t* on_rank = &unit_on_rank[at(item.unit) * at(ranks)];
        std::int64_t* on_node = &unit_on_node[at(item.unit) * nodes];
        int best = 0;
        std::tuple<double, std::int64_t, std::int64_t> best_key{};
        for (int rank = 0; rank < ranks; ++rank) {
            OwnershipCost with = rank_cost[at(rank)];
            with.bytes += item.cost.bytes;
            with.flops += item.cost.flops;
            const std::tuple key(load(with), on_rank[rank], on_node[at(input.mesh.node_of_rank[at(rank)])]);
            if (rank == 0 || key < best_key) {
                best = rank;
                best_key = key;
            }
        }
        owners[i] = best;
        rank_cost[at(best)].bytes += item.cost.bytes;
        rank_cost[at(best)].flops += item.cost.flops;
        on_rank[best] += item.cost.bytes;
        on_node[at(input.mesh.node_of_rank[at(best)])] += item.cost.bytes;
    }
    return owners;
}

/// The three placements of a parameter under a strategy, from the place where a single holder would keep it.
void apply_strategy(Strategy strategy, MatrixShard& shard, const Placement& partitioned, const Placement& replicated) {
    switch (strategy) {
        case Strategy::matrix_fsdp:
            shard.at_rest = shard.gradient = shard.optimizer = partitioned;
            return;
        case Strategy::zero1_owner:
            shard.at_rest = replicated;
            shard.gradient = shard.optimizer = partitioned;
            return;
        case Strategy::ddp:
            shard.at_rest = shard.gradient = shard.optimizer = replicated;
            return;
        case Strategy::fsdp_gather:
        case Strategy::fsdp_gather_once:
            break;
    }
    throw ConfigError("config: parallel.strategy: not supported by this version");
}

/// Panels of a vocabulary table, for a unit that visits it; the units of a tied table share its groups.
const std::vector<std::int64_t>& panel_groups(const model::ModelSpec& spec, std::int64_t parameter,
                                              std::vector<std::vector<std::int64_t>>& of_table, ShardPlan& plan) {
    std::vector<std::int64_t>& groups = of_table[at(parameter)];
    if (!groups.empty()) return groups;
    const std::string& name = spec.parameters[at(parameter)].name;
    for (std::int64_t panel = 0; panel < spec.panels(); ++panel) {
        groups.push_back(static_cast<std::int64_t>(plan.groups.size()));
        plan.groups.push_back({spec.panels() == 1 ? name : name + " panel " + std::to_string(panel),
                               {{parameter, spec.panel_begin(panel), spec.panel_rows(panel)}},
                               {}});
    }
    return groups;
}

void make_groups(const model::ModelSpec& spec, ShardPlan& plan) {
    std::vector<std::vector<std::int64_t>> of_table(spec.parameters.size());
    for (std::size_t unit = 0; unit < spec.units.size(); ++unit) {
        const model::UnitSpec& description = spec.units[unit];
        UnitGroups groups;
        for (std::size_t position = 0; position < description.parameters.size(); ++position) {
            const std::int64_t parameter = description.parameters[position];
            if (static_cast<std::int64_t>(position) == description.table) {
                groups.panels = panel_groups(spec, parameter, of_table, plan);
                continue;
            }
            if (groups.parameters < 0) {
                groups.parameters = static_cast<std::int64_t>(plan.groups.size());
                plan.groups.push_back({description.name, {}, {}});
            }
            plan.groups[at(groups.parameters)].slots.push_back({parameter, 0, spec.parameters[at(parameter)].rows()});
        }
        if (groups.parameters >= 0) plan.groups[at(groups.parameters)].users.push_back(static_cast<std::int64_t>(unit));
        for (const std::int64_t group : groups.panels) {
            plan.groups[at(group)].users.push_back(static_cast<std::int64_t>(unit));
        }
        plan.unit_groups.push_back(std::move(groups));
    }
}

}  // namespace

ShardPlan make_shard_plan(const PlannerInput& input) {
    MFSDP_ASSERT(input.roles.size() == input.spec.parameters.size() && input.costs.size() == input.roles.size(),
                 "roles and costs are by parameter index");
    const std::vector<Item> items = make_items(input);
    const std::vector<int> owners = assign_owners(input, items);
    const int ranks = input.mesh.ranks();

    ShardPlan plan;
    plan.ranks = ranks;
    plan.shards.resize(input.spec.parameters.size());
    std::vector<int> owner_of(plan.shards.size(), -1);
    for (std::size_t i = 0; i < items.size(); ++i) {
        for (const std::int64_t parameter : items[i].parameters) owner_of[at(parameter)] = owners[i];
    }
    for (std::size_t i = 0; i < plan.shards.size(); ++i) {
        const std::int64_t rows = input.spec.parameters[i].rows();
        plan.shards[i].parameter = static_cast<std::int64_t>(i);
        plan.shards[i].role = input.roles[i];
        const Placement partitioned =
            input.roles[i] == Role::rows ? Placement::even_rows(rows, ranks) : Placement::whole(owner_of[i], rows);
        apply_strategy(input.strategy, plan.shards[i], partitioned, Placement::replicated(rows, ranks));
        if (!input.frozen.empty() && input.frozen[i]) plan.shards[i].gradient = plan.shards[i].optimizer = {};
    }
    make_groups(input.spec, plan);
    return plan;
}

std::vector<RankLoad> rank_loads(const ShardPlan& plan, const PlannerInput& input) {
    std::vector<RankLoad> loads(at(plan.ranks));
    for (const MatrixShard& shard : plan.shards) {
        const OwnershipCost& cost = input.costs[at(shard.parameter)];
        const std::int64_t rows = input.spec.parameters[at(shard.parameter)].rows();
        for (const comm::Segment& segment : shard.gradient.segments) {
            RankLoad& load = loads[at(segment.rank)];
            load.bytes += cost.bytes * segment.row_count / rows;
            load.flops += cost.flops * segment.row_count / rows;
        }
    }
    return loads;
}

}  // namespace mfsdp::runtime
