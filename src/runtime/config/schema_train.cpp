#include "runtime/config/key_row.h"

namespace mfsdp::runtime::rows {

namespace {

constexpr std::int64_t kNoCeiling = std::numeric_limits<std::int64_t>::max();

}  // namespace

// Off values: where the page's default is the feature itself (tensorboard, saving), the off value is what does nothing:
// false, interval 0. Keys that only tune a missing feature and have no value that means "nothing"
// (checkpoint.keep_latest_k, load_optimizer, ...) have no off value: giving them at all is refused.
std::vector<KeyRow> data_and_train_keys() {
    return {
        string_list("data.train", "[]")
            .meaning("patterns of token files")
            .required()
            .allowed("a list of at least one pattern"),
        string_list("data.valid", "[]").meaning("patterns of token files for validation"),
        name("data.format", "\"tokens\"")
            .meaning("tokens: kind found by its magic; bytes: raw text")
            .names({"tokens", "bytes"}),
        boolean("data.shuffle", "true").meaning("order of the samples"),
        integer("data.seed", "1234").meaning("of the order of the samples").at_least_zero().ceiling(kNoCeiling),
        name("data.mask_alignment", "\"input\"").meaning("meaning of `BIN.TOK` mask bits").names({"input", "token"}),
        name("data.on_change", "\"error\"").meaning("resume with other files").later({"\"error\""}),
        integer("train.steps").meaning("optimizer steps of the whole run").required().at_least(1),
        integer("train.seq_len").meaning("tokens per sequence, at most the model's positions").required().at_least(1),
        integer("train.micro_batch_size").meaning("sequences per rank and micro-step").required().at_least(1),
        integer("train.global_batch_size")
            .meaning("sequences per step, a multiple of the former")
            .required()
            .at_least(1)
            .ceiling(16777216),  // each has its losses in the tables of a step
        integer("train.seed", "1234")
            .meaning("initial weights, equal for every number of ranks")
            .at_least_zero()
            .ceiling(kNoCeiling),
        integer("train.eval_interval", "0")
            .meaning("validation every so many steps and after the last one, 0 never")
            .at_least_zero(),
        integer("train.eval_samples", "0").meaning("sequences per validation, 0 all").at_least_zero(),
        integer("train.sample_interval", "0")
            .meaning("every so many steps and at the end generate text; 0 never")
            .at_least_zero(),
        integer("train.sample_tokens", "64").meaning("tokens to generate, greedily").at_least(1),
        string("train.sample_prompt", "\"\"")
            .meaning("text for the byte tokenizer, else ids \"12 7 9\"; empty: the end of a document (bytes) or the "
                     "first token of `data.train`"),
        number("train.z_loss", "0")
            .meaning("adds z_loss x mean of (log Z)^2; not part of the logged `loss`")
            .at_least_zero(),
        string_list("train.frozen", "[]")
            .meaning("patterns of parameters that are not trained: no gradient, no state, not in the norm"),
        name("train.nonfinite", "\"skip\"")
            .meaning(
                "a non-finite loss or norm on any rank: all ranks leave all state untouched and go on, or stop with "
                "exit 5")
            .names({"skip", "stop"}),
        integer("train.max_consecutive_skips", "10").meaning("more skipped steps in a row: exit 5").at_least_zero(),
        number("train.exit_duration_minutes").meaning("save and exit 75 after this time").later({"null"}),
    };
}

std::vector<KeyRow> checkpoint_and_telemetry_keys() {
    return {
        string("checkpoint.dir").meaning("null: `<run_dir>/checkpoints`").later({"null"}),
        integer("checkpoint.interval", "0")
            .meaning("steps between saves, 0: only at the end and on request")
            .later({"0"}),
        boolean("checkpoint.save_at_end", "false").meaning("save after the last step").later({"false"}),
        boolean("checkpoint.export_at_end", "true").meaning("final weights in `<run_dir>/model`"),
        boolean("checkpoint.async", "false").meaning("copy the state, write while training goes on").later({"false"}),
        integer("checkpoint.keep_latest_k").meaning("the newest k stay").later({}),
        integer("checkpoint.keep_interval", "0").meaning("steps divisible by it stay for ever, 0 none").later({"0"}),
        // auto is as good as none while there is nothing to resume from.
        string("checkpoint.resume", "\"none\"")
            .meaning("newest complete one in `dir`, else a fresh start; always a fresh start; exactly this one")
            .later({"\"none\"", "\"auto\""}),
        boolean("checkpoint.load_optimizer", "true")
            .meaning("false: masters or weights, step and data position only")
            .later({}),
        boolean("checkpoint.discard_later", "false")
            .meaning("set aside checkpoints newer than the resumed one")
            .later({"false"}),
        string("checkpoint.tokenizer_dir")
            .meaning("its tokenizer and generation files are copied along")
            .later({"null"}),
        integer("checkpoint.max_file_bytes").meaning("size at which a new file begins").later({}),
        integer("checkpoint.io_buffer_bytes").meaning("copy buffer per rank").later({}),
        boolean("checkpoint.verify_after_save", "false").meaning("read back and compare checksums").later({"false"}),
        integer("checkpoint.max_save_failures", "0").meaning("failures in a row that are only logged").later({"0"}),
        integer("checkpoint.timeout_seconds").meaning("limit for one save or load").later({}),
        string("telemetry.run_dir").meaning("null: `runs/<name of the config file>`").allowed("a path"),
        integer("telemetry.log_interval", "1").meaning("steps per line of console and `metrics.jsonl`").at_least(1),
        boolean("telemetry.tensorboard", "false").meaning("the same numbers as TensorBoard scalars").later({"false"}),
        name("telemetry.console", "\"auto\"").meaning("auto: bar on a terminal").names({"auto", "bar", "lines"}),
        number_list("telemetry.trace", "null").meaning("[first, end): steps recorded in `trace.json`").later({"null"}),
        name("telemetry.log_level", "\"info\"")
            .meaning("least important message that is logged; MFSDP_LOG_LEVEL, if set, takes its place for one start")
            .names({"debug", "info", "warn", "error"}),
        boolean("telemetry.rank_logs", "false").meaning("a log file for every rank"),
        integer("telemetry.health_interval", "0")
            .meaning(
                "every so many steps a `health` line per matrix in metrics.jsonl: update/weight RMS, orthogonality "
                "error of the update, gradient RMS; 0 never")
            .at_least_zero(),
        name("device", "\"auto\"")
            .meaning("auto: cuda if every rank sees a GPU, cpu if none does, else an error")
            .names({"auto", "cpu", "cuda"}),
        integer("threads")
            .meaning("compute threads per rank; null: OMP_NUM_THREADS if set (of a list the first number), else cores "
                     "/ ranks on the node")
            .at_least(1)
            .ceiling(4096),
    };
}

}  // namespace mfsdp::runtime::rows
