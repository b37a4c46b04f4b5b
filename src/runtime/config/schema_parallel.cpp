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
            .meaning("where weights, gradients and optimizer state live, see `docs/placement.md`")
            .names({"matrix_fsdp", "zero1_owner", "ddp"}, {"fsdp_gather", "fsdp_gather_once"}),
        integer("parallel.mesh.replicate", "1")
            .meaning("rank = replica x shard + place in the shard group")
            .later({"1"}),
        integer("parallel.mesh.shard").meaning("null: the number of ranks").at_least(1).ceiling(1048576),
        owning(name("parallel.planner.policy", "\"balanced\"")
                   .meaning("longest first over all units, on: the larger of the two weighted shares; resident bytes; "
                            "optimizer work; nothing")
                   .names({"balanced", "bytes", "flops", "round_robin"})),
        planner_weight("parallel.planner.weights.bytes")
            .meaning("a rank's load is max(bytes x share of bytes, flops x share of FLOPs)"),
        planner_weight("parallel.planner.weights.flops")
            .meaning("a rank's load is max(bytes x share of bytes, flops x share of FLOPs)"),
        owning(name("parallel.collectives.gather", "\"auto\"")
                   .meaning("auto: the cheaper of direct and ring by the link costs, for each group; broadcast: NCCL's "
                            "own, with device = cuda")
                   .names({"auto", "direct", "ring", "broadcast"}, {"scatter_allgather", "hierarchical"})),
        name("parallel.collectives.reduce", "\"auto\"")
            .meaning(
                "all keep the one order of additions; auto: grouped under NCCL, which cannot run direct, else direct")
            .names({"auto", "direct", "grouped"}, {"chain", "hierarchical"}),
        integer("parallel.collectives.chunk_bytes", "4194304")
            .meaning("piece size of a transfer")
            .at_least(1024)
            .multiple_of(16, ">= 1024, multiple of 16")
            .ceiling(1073741824),  // the largest message of a schedule
        integer("parallel.collectives.channels", "1").meaning("parallel pipelines of a transfer").later({"1"}),
        string("parallel.calibration")
            .meaning("link costs written by `mfsdp-bench calibrate`; null: built-in figures")
            .allowed("an existing file"),
        strategy(
            {"fsdp_gather", "fsdp_gather_once"},
            name("parallel.matrix_step").meaning("each matrix orthogonalised on one rank, or on every rank").later({})),
        name("parallel.transport", "\"auto\"")
            .meaning("auto: self with one rank, nccl on GPUs, else mpi")
            .names({"auto", "self", "mpi", "nccl"}),
        gathering(integer("parallel.prefetch_units", "1").meaning("units gathered ahead").at_least_zero()),
        gathering(
            integer("parallel.prefetch_bytes").meaning("limit of the bytes of those gathers; null: none").at_least(1)),
        gathering(
            boolean("parallel.reshard_after_forward", "true").meaning("false keeps units resident until backward")),
        boolean("parallel.overlap_optimizer", "false")
            .meaning("step a unit as soon as its gradient is complete")
            .later({"false"}),
        integer("parallel.init_timeout_seconds", "300").meaning("limit of start-up exchanges").at_least(1),
        integer("parallel.train_timeout_seconds", "600")
            .meaning("longest time without progress in a transfer")
            .at_least(1),
        integer("parallel.check_replicas_interval", "0")
            .meaning("every so many steps compare hashes of replicated values, difference: exit 5")
            .later({"0"}),
        name("precision.param_dtype", "\"bfloat16\"")
            .meaning("weights and activations; masters, sums and optimizer state are float32")
            .names({"bfloat16", "float32"}),
        name("precision.grad_dtype")
            .meaning("one micro-batch's gradient, also on the wire; null: `param_dtype`")
            .names({"bfloat16", "float32"}),
        boolean("precision.deterministic", "true")
            .meaning(
                "only kernels with a fixed order of additions; false lets a GPU's libraries choose faster ones, the "
                "CPU has no others"),
        name("recompute.mode", "\"none\"")
            .meaning("redo in backward: nothing, attention, the whole block; the same bits in every mode")
            .names({"none", "attention", "block"}),
        integer("recompute.every", "1").meaning("in every k-th block").at_least(1),
    };
}

}  // namespace mfsdp::runtime::rows
