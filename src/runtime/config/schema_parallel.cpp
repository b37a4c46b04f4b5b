#include "runtime/config/key_row.h"

namespace mfsdp::runtime::rows {

namespace {

KeyBuilder strategy(std::vector<std::string_view> strategies, KeyBuilder row) {
    return row.only("parallel.strategy", std::move(strategies));
}

/// Strategies that gather weights before a unit computes; the others hold all weights at rest.
KeyBuilder gathering(KeyBuilder row) {
    return strategy({"matrix_fsdp", "fsdp_gather", "fsdp_gather_once"}, std::move(row));
}

/// Strategies with owners. Under ddp every rank holds and updates everything: nothing to plan, nothing to gather.
KeyBuilder owning(KeyBuilder row) {
    return strategy({"matrix_fsdp", "fsdp_gather", "fsdp_gather_once", "zero1_owner"}, std::move(row));
}

KeyBuilder planner_weight(std::string_view path) {
    return owning(number(path, "1").above_zero()).only("parallel.planner.policy", {"balanced"});
}

}  // namespace

std::vector<KeyRow> parallel_and_precision_keys() {
    return {
        name("parallel.strategy", "\"matrix_fsdp\"")
            .names({"matrix_fsdp", "zero1_owner", "ddp"}, {"fsdp_gather", "fsdp_gather_once"}),
        integer("parallel.mesh.replicate", "1").later({"1"}),
        integer("parallel.mesh.shard").at_least(1).ceiling(2147483647),
        owning(name("parallel.planner.policy", "\"balanced\"").names({"balanced", "bytes", "flops", "round_robin"})),
        planner_weight("parallel.planner.weights.bytes"),
        planner_weight("parallel.planner.weights.flops"),
        owning(name("parallel.collectives.gather", "\"auto\"")
                   .names({"auto", "direct", "ring"}, {"scatter_allgather", "hierarchical"})),
        name("parallel.collectives.reduce", "\"auto\"").names({"auto", "direct"}, {"chain", "hierarchical"}),
        integer("parallel.collectives.chunk_bytes", "4194304")
            .at_least(1024)
            .multiple_of(16, ">= 1024, multiple of 16")
            .ceiling(1073741824),  // the largest message of a schedule
        integer("parallel.collectives.channels", "1").later({"1"}),
        string("parallel.calibration").later({"null"}),
        strategy({"fsdp_gather", "fsdp_gather_once"}, name("parallel.matrix_step").later({})),
        name("parallel.transport", "\"auto\"").names({"auto", "self", "mpi", "nccl"}),
        gathering(integer("parallel.prefetch_units", "1").at_least_zero()),
        gathering(integer("parallel.prefetch_bytes").at_least(1)),
        gathering(boolean("parallel.reshard_after_forward", "true")),
        boolean("parallel.overlap_optimizer", "false").later({"false"}),
        integer("parallel.init_timeout_seconds", "300").at_least(1),
        integer("parallel.train_timeout_seconds", "600").at_least(1),
        integer("parallel.check_replicas_interval", "0").later({"0"}),
        // The default stays the page's, so that a file without the key does not change its meaning later.
        name("precision.param_dtype", "\"bfloat16\"").names({"float32"}, {"bfloat16"}).hint("set \"float32\""),
        name("precision.grad_dtype").names({"float32"}, {"bfloat16"}),
        boolean("precision.deterministic", "true").later({"true"}),
        name("recompute.mode", "\"none\"").later({"\"none\""}),
        integer("recompute.every").later({}),
    };
}

}  // namespace mfsdp::runtime::rows
