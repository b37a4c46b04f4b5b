#include "mfsdp/runtime/store/visit_sequence.h"

namespace mfsdp::runtime {

std::vector<Visit> visit_sequence(const model::ModelSpec& spec, const ShardPlan& plan, std::int64_t micro_steps) {
    std::vector<Visit> visits;
    const std::int64_t head = spec.head_unit();
    const auto add = [&](std::int64_t micro_step, std::int64_t unit, bool backward) {
        const auto u = static_cast<std::size_t>(unit);
        Visit visit{micro_step, unit, backward, {}, {}};
        if (!backward || spec.units[u].backward_reads_weights) visit.reads = plan.unit_groups[u];
        visits.push_back(std::move(visit));
    };
    for (std::int64_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
        for (std::int64_t unit = 0; unit < head; ++unit) add(micro_step, unit, false);
        for (std::int64_t unit = head; unit >= 0; --unit) add(micro_step, unit, true);
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
