#include "mfsdp/runtime/telemetry/metrics.h"

#include "json_line.h"

#include <array>
#include <ctime>
#include <string_view>

namespace mfsdp::runtime {

std::string utc_time() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    std::array<char, 32> text{};
    const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return std::string(text.data(), length);
}

std::string metrics_line(const RunRecord& record) {
    JsonLine mesh;
    mesh.add("replicate", record.mesh_replicate).add("shard", record.mesh_shard);
    JsonLine parameters;
    parameters.add("matrix", record.matrix_parameters)
        .add("rows", record.rows_parameters)
        .add("tail", record.tail_parameters);
    JsonLine line;
    line.add("kind", std::string_view("run"))
        .add("version", record.version)
        .add("config_hash", record.config_hash)
        .add("plan_hash", record.plan_hash)
        .add("world_size", record.world_size)
        .add("mesh", mesh)
        .add("strategy", record.strategy)
        .add("device", record.device)
        .add("parameters", parameters)
        .add("samples_per_epoch", record.samples_per_epoch)
        .add("padded_vocab_size", record.padded_vocab_size)
        .add_or_null("peak_flops", record.peak_flops)
        .add("flops_per_token", record.flops_per_token);
    return line.text();
}

std::string metrics_line(const TrainRecord& record) {
    JsonLine line;
    line.add("kind", std::string_view("train"))
        .add("step", record.step)
        .add("tokens_seen", record.tokens_seen)
        .add("epoch", record.epoch)
        .add("loss", record.loss)
        .add("z_loss", record.z_loss)
        .add("targets", record.targets)
        .add("grad_norm", record.grad_norm)
        .add("clip_scale", record.clip_scale)
        .add("lr", record.lr)
        .add("matrix_lr", record.matrix_lr)
        .add("skipped", std::int64_t{record.skipped ? 1 : 0})
        .add("skipped_total", record.skipped_total)
        .add("step_time_s", record.step_time_s)
        .add("data_s", record.data_s)
        .add("forward_s", record.forward_s)
        .add("backward_s", record.backward_s)
        .add("optimizer_s", record.optimizer_s)
        .add("exposed_comm_s", record.exposed_comm_s)
        .add("optimizer_imbalance", record.optimizer_imbalance)
        .add("tokens_per_s", record.tokens_per_s)
        .add("tokens_per_s_per_rank", record.tokens_per_s_per_rank)
        .add("tflops_per_rank", record.tflops_per_rank)
        .add_or_null("mfu", record.mfu)
        .add("gather_bytes", record.gather_bytes)
        .add("reduce_bytes", record.reduce_bytes)
        .add("optimizer_bytes", record.optimizer_bytes)
        .add("memory_peak_bytes", record.memory_peak_bytes)
        .add("memory_reserved_bytes", record.memory_reserved_bytes);
    return line.text();
}

std::string metrics_line(const EvalRecord& record) {
    JsonLine line;
    line.add("kind", std::string_view("eval"))
        .add("step", record.step)
        .add("eval_loss", record.eval_loss)
        .add("eval_targets", record.eval_targets)
        .add("eval_s", record.eval_s);
    return line.text();
}

std::string metrics_line(const HealthRecord& record) {
    JsonLine line;
    line.add("kind", std::string_view("health"))
        .add("step", record.step)
        .add("parameter", record.parameter)
        .add("update_ratio", record.update_ratio)
        .add("orthogonality_error", record.orthogonality_error)
        .add("gradient_rms", record.gradient_rms);
    return line.text();
}

std::string metrics_line(const EventRecord& record) {
    JsonLine line;
    line.add("kind", std::string_view("event"))
        .add("step", record.step)
        .add("time", record.time)
        .add("event", record.event);
    for (const auto& [key, value] : record.details) {
        std::visit([&line, &name = key](const auto& detail) { line.add(name, detail); }, value);
    }
    return line.text();
}

}  // namespace mfsdp::runtime
