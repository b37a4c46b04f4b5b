#include "mfsdp/runtime/store/visit_sequence.h"

namespace mfsdp::runtime {

namespace {

std::vector<std::int64_t> groups_of(const UnitGroups& groups, const model::UnitVisit& work, bool parameters,
                                    bool panel) {
    std::vector<std::int64_t> result;
    if (parameters && groups.parameters >= 0) result.push_back(groups.parameters);
    if (panel) result.push_back(groups.panels[static_cast<std::size_t>(work.panel)]);
    return result;
}

/// Frozen groups have no gradient.
void drop_frozen(const ShardPlan& plan, std::vector<std::int64_t>& groups) {
    std::erase_if(groups, [&](std::int64_t group) {
        for (const GroupSlot& slot : plan.groups[static_cast<std::size_t>(group)].slots) {
            if (!plan.shards[static_cast<std::size_t>(slot.parameter)].frozen()) return false;
        }
        return true;
    });
}

}  // namespace

std::vector<Visit> visit_sequence(const model::ModelSpec& spec, const ShardPlan& plan, model::Purpose purpose,
                                  std::int64_t micro_steps) {
    const std::vector<model::UnitVisit> of_micro_batch = model::unit_visits(spec, purpose);
    std::vector<Visit> visits;
    visits.reserve(of_micro_batch.size() * static_cast<std::size_t>(micro_steps));
    for (std::int64_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
        for (const model::UnitVisit& work : of_micro_batch) {
            const UnitGroups& groups = plan.unit_groups[static_cast<std::size_t>(work.unit)];
            Visit visit{micro_step,
                        work,
                        groups_of(groups, work, work.reads_parameters, work.reads_panel),
                        {},
                        groups_of(groups, work, work.writes_parameters, work.writes_panel)};
            drop_frozen(plan, visit.writes);
            visits.push_back(std::move(visit));
        }
    }
    std::vector<std::int64_t> next(plan.groups.size(), Visit::kNever);
    for (auto index = static_cast<std::int64_t>(visits.size()) - 1; index >= 0; --index) {
        Visit& visit = visits[static_cast<std::size_t>(index)];
        for (const std::int64_t group : visit.reads) {
            visit.next_read.push_back(next[static_cast<std::size_t>(group)]);
            next[static_cast<std::size_t>(group)] = index;
        }
    }
    return visits;
}

}  // namespace mfsdp::runtime
