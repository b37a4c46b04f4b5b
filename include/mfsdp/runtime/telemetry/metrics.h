#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace mfsdp::runtime {

// The lines of metrics.jsonl; names, units and meaning of every key: docs/metrics.md. An unset optional leaves its key
// out, except where a comment says null.

/// The first line of each start.
struct RunRecord {
    std::string version;
    std::string config_hash;
    std::string plan_hash;
    std::int64_t world_size = 1;
    std::int64_t mesh_replicate = 1;
    std::int64_t mesh_shard = 1;
    std::string strategy;
    std::string device;
    std::int64_t matrix_parameters = 0;  ///< elements, by role
    std::int64_t rows_parameters = 0;
    std::int64_t tail_parameters = 0;
    std::int64_t samples_per_epoch = 0;
    std::int64_t padded_vocab_size = 0;
    std::optional<double> peak_flops;  ///< unknown: null
    double flops_per_token = 0;
};

/// One training step, or the mean since the line before.
struct TrainRecord {
    std::int64_t step = 0;         ///< completed steps
    std::int64_t tokens_seen = 0;  ///< input positions so far
    double epoch = 0;
    double loss = 0;  ///< nat per unmasked target, before the update
    std::optional<double> z_loss;
    std::int64_t targets = 0;
    double grad_norm = 0;  ///< before clipping
    double clip_scale = 1;
    double lr = 0;
    std::optional<double> matrix_lr;
    bool skipped = false;
    std::int64_t skipped_total = 0;
    double step_time_s = 0;
    std::optional<double> data_s;
    std::optional<double> forward_s;
    std::optional<double> backward_s;
    std::optional<double> optimizer_s;
    std::optional<double> exposed_comm_s;
    std::optional<double> optimizer_imbalance;
    double tokens_per_s = 0;
    double tokens_per_s_per_rank = 0;
    double tflops_per_rank = 0;
    std::optional<double> mfu;  ///< unknown device: null
    std::optional<std::int64_t> gather_bytes;
    std::optional<std::int64_t> reduce_bytes;
    std::optional<std::int64_t> optimizer_bytes;
    std::optional<std::int64_t> memory_peak_bytes;
    std::optional<std::int64_t> memory_reserved_bytes;
};

/// One validation.
struct EvalRecord {
    std::int64_t step = 0;  ///< completed steps
    double eval_loss = 0;   ///< nat per unmasked target
    std::int64_t eval_targets = 0;
    double eval_s = 0;
};

/// Health of one matrix under the matrix optimizer.
struct HealthRecord {
    std::int64_t step = 0;
    std::string parameter;
    double update_ratio = 0;         ///< RMS of the update / RMS of the weight before it
    double orthogonality_error = 0;  ///< |O O^T - I| / sqrt(s), O scaled to |O|^2 = s, s the smaller side
    double gradient_rms = 0;         ///< of the mean gradient, after clipping
};

/// Something that happened: start, skip, sample, stop.
struct EventRecord {
    using Value = std::variant<std::int64_t, double, std::string>;
    std::int64_t step = 0;
    std::string event;
    std::string time;                                    ///< utc_time() when it happened
    std::vector<std::pair<std::string, Value>> details;  ///< e.g. {"exit_code", 0}; written in this order
};

/// Now, as `2025-01-31T23:59:59Z`.
[[nodiscard]] std::string utc_time();

/// The line of a record, without its line end: one JSON object whose first key is `kind`. Floats have the shortest
/// text that reads back to the same bits; a non-finite one is the string "nan", "inf" or "-inf".
[[nodiscard]] std::string metrics_line(const RunRecord& record);
[[nodiscard]] std::string metrics_line(const TrainRecord& record);
[[nodiscard]] std::string metrics_line(const EvalRecord& record);
[[nodiscard]] std::string metrics_line(const HealthRecord& record);
[[nodiscard]] std::string metrics_line(const EventRecord& record);

}  // namespace mfsdp::runtime
