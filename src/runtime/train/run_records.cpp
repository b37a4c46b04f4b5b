#include "mfsdp/runtime/train/run_records.h"

#include "mfsdp/runtime/config/names.h"
#include "mfsdp/runtime/config/parse_config.h"
#include "mfsdp/version.h"

namespace mfsdp::runtime {

void StepInterval::add(const GlobalFacts& facts, double seconds) {
    ++steps;
    wall_seconds += seconds;
    longest.data_seconds += facts.longest.data_seconds;
    longest.forward_seconds += facts.longest.forward_seconds;
    longest.backward_seconds += facts.longest.backward_seconds;
    longest.optimizer_seconds += facts.longest.optimizer_seconds;
    longest.exposed_communication_seconds += facts.longest.exposed_communication_seconds;
    mean_optimizer_seconds += facts.mean_optimizer_seconds;
}

RunRecord run_record(const TrainConfig& config, const RunPlan& plan, const std::string& device,
                     std::int64_t samples_per_epoch) {
    RunRecord record;
    record.version = version();
    record.config_hash = config_hash(config);
    record.plan_hash = plan.plan.hash(plan.spec);
    record.world_size = plan.plan.ranks;
    record.mesh_replicate = plan.mesh.replicate;
    record.mesh_shard = plan.mesh.shard;
    record.strategy = name(config.parallel.strategy);
    record.device = device;
    for (std::size_t i = 0; i < plan.roles.size(); ++i) {
        const std::int64_t count = plan.spec.parameters[i].stored_count();
        switch (plan.roles[i]) {
            case optim::Role::matrix:
                record.matrix_parameters += count;
                break;
            case optim::Role::rows:
                record.rows_parameters += count;
                break;
            case optim::Role::tail:
                record.tail_parameters += count;
                break;
        }
    }
    record.samples_per_epoch = samples_per_epoch;
    record.padded_vocab_size = plan.spec.config.padded_vocab_size;
    record.flops_per_token = model::flops_per_token(plan.spec, config.train.seq_len);
    return record;
}

TrainRecord train_record(const TrainConfig& config, const RunPlan& plan, const RunPosition& position,
                         const StepResult& result, const StepInterval& past) {
    const std::int64_t tokens_per_step = config.train.global_batch_size * config.train.seq_len;
    const double step_seconds = past.mean(past.wall_seconds);
    const GlobalFacts& facts = result.facts;
    TrainRecord record;
    record.step = position.step;
    record.tokens_seen = position.step * tokens_per_step;
    record.epoch = position.epoch;
    record.loss = result.loss;
    if (config.train.z_loss > 0.0) record.z_loss = result.z_loss;
    record.targets = facts.loss.targets;
    record.grad_norm = result.grad_norm;
    record.clip_scale = result.clip_scale;
    record.lr = config.optimizer.element.lr * position.rate_factor;
    if (plan.engine.optimizer.matrix) record.matrix_lr = config.optimizer.matrix.lr * position.rate_factor;
    record.skipped = result.skipped;
    record.skipped_total = position.skipped_total;
    record.step_time_s = step_seconds;
    record.data_s = past.mean(past.longest.data_seconds);
    record.forward_s = past.mean(past.longest.forward_seconds);
    record.backward_s = past.mean(past.longest.backward_seconds);
    record.optimizer_s = past.mean(past.longest.optimizer_seconds);
    record.exposed_comm_s = past.mean(past.longest.exposed_communication_seconds);
    if (past.mean_optimizer_seconds > 0.0) {
        record.optimizer_imbalance = past.longest.optimizer_seconds / past.mean_optimizer_seconds;
    }
    record.tokens_per_s = static_cast<double>(tokens_per_step) / step_seconds;
    record.tokens_per_s_per_rank = record.tokens_per_s / plan.plan.ranks;
    record.tflops_per_rank =
        record.tokens_per_s_per_rank * model::flops_per_token(plan.spec, config.train.seq_len) / 1e12;
    record.gather_bytes = facts.gather_bytes;
    record.reduce_bytes = facts.reduce_bytes;
    record.optimizer_bytes = facts.optimizer_bytes;
    record.memory_peak_bytes = facts.memory_peak_bytes;
    record.memory_reserved_bytes = facts.memory_peak_bytes;  // pools are allocated once, at their peak
    return record;
}

}  // namespace mfsdp::runtime
