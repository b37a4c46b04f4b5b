#include "runtime/config/key_row.h"

namespace mfsdp::runtime::rows {

namespace {

constexpr std::int64_t kNoCeiling = std::numeric_limits<std::int64_t>::max();

}  // namespace

// Off values: where the page's default is the feature itself (skip, tensorboard, saving), the off value is what does
// nothing: stop, false, interval 0. Keys that only tune a missing feature and have no value that means "nothing"
// (sample_tokens, checkpoint.keep_latest_k, load_optimizer, ...) have no off value: giving them at all is refused.
std::vector<KeyRow> data_and_train_keys() {
    return {
        string_list("data.train", "[]").required().allowed("a list of at least one pattern"),
        string_list("data.valid", "[]").later({"[]"}),
        name("data.format", "\"tokens\"").names({"tokens", "bytes"}),
        boolean("data.shuffle", "true"),
        integer("data.seed", "1234").at_least_zero().ceiling(kNoCeiling),
        name("data.mask_alignment", "\"input\"").names({"input", "token"}),
        name("data.on_change", "\"error\"").later({"\"error\""}),
        integer("train.steps").required().at_least(1),
        integer("train.seq_len").required().at_least(1),
        integer("train.micro_batch_size").required().at_least(1),
        integer("train.global_batch_size").required().at_least(1),
        integer("train.seed", "1234").at_least_zero().ceiling(kNoCeiling),
        integer("train.eval_interval", "0").later({"0"}),
        integer("train.eval_samples", "0").later({"0"}),
        integer("train.sample_interval", "0").later({"0"}),
        integer("train.sample_tokens").later({}),
        string("train.sample_prompt", "\"\"").later({"\"\""}),
        number("train.z_loss", "0").later({"0"}),
        string_list("train.frozen", "[]").later({"[]"}),
        name("train.nonfinite", "\"stop\"").names({"stop"}, {"skip"}).hint("set \"stop\""),
        integer("train.max_consecutive_skips", "0").later({"0"}),
        number("train.exit_duration_minutes").later({"null"}),
    };
}

std::vector<KeyRow> checkpoint_and_telemetry_keys() {
    return {
        string("checkpoint.dir").later({"null"}),
        integer("checkpoint.interval", "0").later({"0"}),
        boolean("checkpoint.save_at_end", "false").later({"false"}),
        boolean("checkpoint.export_at_end", "true"),
        boolean("checkpoint.async", "false").later({"false"}),
        integer("checkpoint.keep_latest_k").later({}),
        integer("checkpoint.keep_interval", "0").later({"0"}),
        // auto is as good as none while there is nothing to resume from.
        string("checkpoint.resume", "\"none\"").later({"\"none\"", "\"auto\""}),
        boolean("checkpoint.load_optimizer", "true").later({}),
        boolean("checkpoint.discard_later", "false").later({"false"}),
        string("checkpoint.tokenizer_dir").later({"null"}),
        integer("checkpoint.max_file_bytes").later({}),
        integer("checkpoint.io_buffer_bytes").later({}),
        boolean("checkpoint.verify_after_save", "false").later({"false"}),
        integer("checkpoint.max_save_failures", "0").later({"0"}),
        integer("checkpoint.timeout_seconds").later({}),
        string("telemetry.run_dir").allowed("a path"),
        integer("telemetry.log_interval", "1").at_least(1),
        boolean("telemetry.tensorboard", "false").later({"false"}),
        name("telemetry.console", "\"auto\"").names({"auto", "bar", "lines"}),
        number_list("telemetry.trace", "null").later({"null"}),
        name("telemetry.log_level", "\"info\"").names({"debug", "info", "warn", "error"}),
        boolean("telemetry.rank_logs", "false").later({"false"}),
        integer("telemetry.health_interval", "0").later({"0"}),
        name("device", "\"auto\"").names({"auto", "cpu", "cuda"}),
        integer("threads").at_least(1).ceiling(2147483647),
    };
}

}  // namespace mfsdp::runtime::rows
