#include "mfsdp/runtime/placement/shard_plan.h"

#include "mfsdp/base/hash64.h"

namespace mfsdp::runtime {

namespace {

void append(std::string& text, const comm::Placement& placement) {
    text += '[';
    for (const comm::Segment& segment : placement.segments) {
        text += std::to_string(segment.rank) + ':' + std::to_string(segment.row_begin) + '+' +
                std::to_string(segment.row_count) + ' ';
    }
    text += ']';
}

}  // namespace

std::string ShardPlan::hash(const model::ModelSpec& spec) const {
    std::string text = std::to_string(ranks) + '\n';
    for (const MatrixShard& shard : shards) {
        text += spec.parameters[static_cast<std::size_t>(shard.parameter)].name + ' ' +
                std::string(optim::name(shard.role));
        append(text, shard.at_rest);
        append(text, shard.gradient);
        append(text, shard.optimizer);
        text += '\n';
    }
    return base::hash64_text(base::hash64(text));
}

}  // namespace mfsdp::runtime
