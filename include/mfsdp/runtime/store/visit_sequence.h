#pragma once

#include "mfsdp/runtime/placement/shard_plan.h"

#include <cstdint>
#include <vector>

namespace mfsdp::runtime {

/// One use of a unit in a step. The head's forward and backward are one visit, a backward one.
struct Visit {
    std::int64_t micro_step = 0;
    std::int64_t unit = 0;
    bool backward = false;
    std::vector<std::int64_t> reads;  ///< groups whose weights it uses
    /// For each entry of reads: the next visit of this step that reads the group, or kNever.
    std::vector<std::int64_t> next_read;

    static constexpr std::int64_t kNever = std::int64_t{1} << 62;
};

/// The static sequence of one step: embedding, blocks, head, blocks backward, embedding backward; micro-step after
/// micro-step. The embedding's backward reads no weights.
[[nodiscard]] std::vector<Visit> visit_sequence(const model::ModelSpec& spec, const ShardPlan& plan,
                                                std::int64_t micro_steps);

}  // namespace mfsdp::runtime
