#pragma once

#include "mfsdp/model/unit_visit.h"
#include "mfsdp/runtime/placement/shard_plan.h"

#include <cstdint>
#include <vector>

namespace mfsdp::runtime {

/// One visit of a unit, or of one panel of its vocabulary table, in one micro-step; with the transfer groups it needs.
struct Visit {
    std::int64_t micro_step = 0;
    model::UnitVisit work;
    std::vector<std::int64_t> reads;  ///< groups whose weights it uses
    /// For each entry of reads: the next visit of the sequence that reads the group, or kNever.
    std::vector<std::int64_t> next_read;
    std::vector<std::int64_t> writes;  ///< groups whose gradient it makes

    static constexpr std::int64_t kNever = std::int64_t{1} << 62;
};

/// The static sequence of visits of `micro_steps` micro-batches in a row, each in the model's order for `purpose`.
[[nodiscard]] std::vector<Visit> visit_sequence(const model::ModelSpec& spec, const ShardPlan& plan,
                                                model::Purpose purpose, std::int64_t micro_steps);

}  // namespace mfsdp::runtime
