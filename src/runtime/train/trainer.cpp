#include "mfsdp/runtime/train/trainer.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/hash64.h"
#include "mfsdp/comm/startup_comparison.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/model/huggingface.h"
#include "mfsdp/optim/learning_rate.h"
#include "mfsdp/runtime/config/environment.h"
#include "mfsdp/runtime/config/names.h"
#include "mfsdp/runtime/config/parse_config.h"
#include "mfsdp/runtime/data/batch_loader.h"
#include "mfsdp/runtime/telemetry/log.h"
#include "mfsdp/runtime/telemetry/metrics_writer.h"
#include "mfsdp/runtime/telemetry/progress.h"
#include "mfsdp/runtime/telemetry/run_directory.h"
#include "mfsdp/runtime/train/launch.h"
#include "mfsdp/runtime/train/rehearsal.h"
#include "mfsdp/runtime/train/report.h"
#include "mfsdp/version.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace mfsdp::runtime {

namespace {

/// A launcher gives ranks a pseudo-terminal whatever its own output is, so that `auto` cannot tell: lines, then.
ConsoleStyle console_style(const TrainConfig& config) {
    const bool unknown = config.telemetry.console == ConsoleStyle::automatic && started_by_launcher();
    return unknown ? ConsoleStyle::lines : config.telemetry.console;
}

/// What rank 0 alone keeps: the run's directory and what is written to people and files.
struct Sinks {
    Sinks(const TrainConfig& config, const std::string& resolved)
        : directory(config.telemetry.run_dir),
          metrics(directory.metrics_path()),
          progress(config.train.steps, draws_bar(console_style(config)), std::cout) {
        directory.write_resolved_config(resolved);
    }
    RunDirectory directory;
    MetricsWriter metrics;
    Progress progress;
};

/// What lies between two lines of metrics: sums over its steps of the slowest rank's times.
struct Interval {
    std::int64_t steps = 0;
    double wall_seconds = 0.0;
    StepTimes longest;
    double mean_optimizer_seconds = 0.0;

    void add(const GlobalFacts& facts, double seconds) {
        ++steps;
        wall_seconds += seconds;
        longest.data_seconds += facts.longest.data_seconds;
        longest.forward_seconds += facts.longest.forward_seconds;
        longest.backward_seconds += facts.longest.backward_seconds;
        longest.optimizer_seconds += facts.longest.optimizer_seconds;
        longest.exposed_communication_seconds += facts.longest.exposed_communication_seconds;
        mean_optimizer_seconds += facts.mean_optimizer_seconds;
    }
    [[nodiscard]] double mean(double sum) const { return sum / static_cast<double>(steps); }
};

class Trainer {
  public:
    Trainer(const TrainConfig& config, comm::Communicator& communicator)
        : config_(config), communicator_(communicator) {
        communicator_.set_timeout_seconds(static_cast<double>(config.parallel.init_timeout_seconds));
        run_together(communicator_, [&] { plan(); });
        run_together(communicator_, [&] { open_sinks(); });
        run_together(communicator_, [&] { comm::compare_startup_facts(communicator_, startup_facts()); });
        run_together(communicator_, [&] { build(); });
        run_together(communicator_, [&] { comm::compare_message_lists(communicator_, engine_->schedules()); });
        communicator_.set_timeout_seconds(static_cast<double>(config.parallel.train_timeout_seconds));
    }

    void run() {
        engine_->weights().initialise(static_cast<std::uint64_t>(config_.train.seed));
        announce();
        step_begin_ = std::chrono::steady_clock::now();  // the first step's time is without the start-up
        for (std::int64_t step = 1; step <= config_.train.steps; ++step) run_step(step);
        engine_->settle();
        if (sinks_) sinks_->progress.finish();
        if (config_.checkpoint.export_at_end) export_model();
        finish();
    }

  private:
    void plan();
    void open_sinks();
    void build();
    void announce();
    void run_step(std::int64_t step);
    void report(std::int64_t step, const StepResult& result, double rate_factor);
    void export_model();
    void finish();
    [[nodiscard]] std::vector<comm::StartupFacts> startup_facts() const;
    [[nodiscard]] std::int64_t tokens_per_step() const {
        return config_.train.global_batch_size * config_.train.seq_len;
    }

    const TrainConfig& config_;
    comm::Communicator& communicator_;
    std::unique_ptr<Log> log_;
    std::unique_ptr<Sinks> sinks_;  // rank 0
    std::optional<RunPlan> plan_;
    Rehearsal rehearsal_;
    std::unique_ptr<BatchLoader> loader_;
    optim::LearningRateSchedule schedule_;
    std::int64_t ranks_on_node_ = 1;
    int threads_ = 1;
    std::unique_ptr<device::Device> device_;
    std::unique_ptr<comm::Executor> executor_;
    std::unique_ptr<RankAgreement> agreement_;
    std::unique_ptr<Engine> engine_;

    Interval interval_;  // since the last line of metrics
    std::chrono::steady_clock::time_point step_begin_;
};

void Trainer::plan() {
    const std::vector<int> nodes = communicator_.node_of_rank();
    plan_.emplace(make_run_plan(config_, nodes));
    choose_transfers(*plan_);
    const int node = nodes[static_cast<std::size_t>(communicator_.rank())];
    ranks_on_node_ = std::count(nodes.begin(), nodes.end(), node);
    threads_ = resolve_threads(config_, ranks_on_node_);
    if (config_.parallel.transport == TransportChoice::self && communicator_.size() > 1) {
        throw ConfigError("config: parallel.transport = self: needs 1 rank, started with " +
                          std::to_string(communicator_.size()));
    }
    if (config_.parallel.transport == TransportChoice::mpi && !started_by_launcher()) {
        throw ConfigError(
            "config: parallel.transport = mpi: this process was not started by mpirun or srun --mpi=pmix");
    }
    loader_ = std::make_unique<BatchLoader>(
        DataOptions{config_.data.train, config_.data.format, config_.data.mask_alignment, config_.model.vocab_size,
                    config_.train.seq_len, config_.train.micro_batch_size, config_.train.global_batch_size,
                    config_.data.shuffle, static_cast<std::uint64_t>(config_.data.seed)});
    schedule_ = {config_.optimizer.warmup_steps, config_.optimizer.decay_steps, config_.train.steps,
                 config_.optimizer.decay_style, config_.optimizer.min_lr / config_.optimizer.lr};
    device_ = device::make_cpu_device({.threads = threads_});
}

void Trainer::open_sinks() {
    LogOptions log{resolve_log_level(config_), communicator_.rank(), communicator_.rank() == 0, false, ""};
    if (communicator_.rank() == 0) {
        const std::vector<std::string> choices{"parallel.mesh.shard=" + std::to_string(plan_->mesh.shard),
                                               "threads=" + std::to_string(threads_), "device=cpu"};
        sinks_ = std::make_unique<Sinks>(config_, print_resolved_config(config_, choices));
        log.clears_line = draws_bar(console_style(config_));
    }
    if (communicator_.rank() == 0 || config_.telemetry.rank_logs) {
        log.file_path = rank_log_path(config_.telemetry.run_dir, communicator_.rank());
    }
    log_ = std::make_unique<Log>(log);
}

std::vector<comm::StartupFacts> Trainer::startup_facts() const {
    return {{"program version", std::string(version())},
            {"configuration", config_hash(config_)},
            {"plan", plan_->plan.hash(plan_->spec)},
            {"data", base::hash64_text(loader_->stream().fingerprint())},
            {"device", device_->description()}};
}

void Trainer::build() {
    rehearsal_ = rehearse(*plan_, communicator_.rank());
    require_memory(rehearsal_, ranks_on_node_);
    executor_ = communicator_.size() == 1
                    ? comm::make_self_executor(*device_)
                    : comm::make_progress_executor(
                          communicator_, *device_,
                          {.timeout_seconds = static_cast<double>(config_.parallel.train_timeout_seconds)});
    agreement_ = std::make_unique<RankAgreement>(communicator_, plan_->engine.micro_batches);
    engine_ = std::make_unique<Engine>(
        Engine::Parts{plan_->spec, plan_->plan, plan_->mesh, communicator_.rank(), *device_, *executor_, *agreement_},
        plan_->engine, rehearsal_.pools);
}

void Trainer::announce() {
    if (!sinks_) return;
    for (const std::string& notice : config_.notices) log_->info(notice);
    const std::int64_t micro_steps = (plan_->engine.micro_batches + plan_->plan.ranks - 1) / plan_->plan.ranks;
    log_->info(describe_run(*plan_, config_, threads_, device_->description()));
    log_->info(optim::routing_table(plan_->spec, plan_->roles, std::string(name(config_.optimizer.matrix.name))));
    log_->info(describe_memory(rehearsal_));
    if (const std::int64_t unused = loader_->unused_tokens(); unused > 0) {
        log_->info("data: " + std::to_string(unused) + " tokens at the end are in no sample");
    }
    if (const std::int64_t idle = micro_steps * plan_->plan.ranks - plan_->engine.micro_batches; idle > 0) {
        log_->info(describe_idle(idle, micro_steps * plan_->plan.ranks));
    }
    RunRecord record;
    record.version = version();
    record.config_hash = config_hash(config_);
    record.plan_hash = plan_->plan.hash(plan_->spec);
    record.world_size = communicator_.size();
    record.mesh_replicate = plan_->mesh.replicate;
    record.mesh_shard = plan_->mesh.shard;
    record.strategy = name(config_.parallel.strategy);
    record.device = device_->description();
    for (std::size_t i = 0; i < plan_->roles.size(); ++i) {
        const std::int64_t count = plan_->spec.parameters[i].count();
        switch (plan_->roles[i]) {
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
    record.samples_per_epoch = loader_->samples_per_epoch();
    record.padded_vocab_size = config_.model.vocab_size;
    record.flops_per_token = model::flops_per_token(plan_->spec, config_.train.seq_len);
    sinks_->metrics.write(record);
    sinks_->metrics.write(EventRecord{0, "start", utc_time(), {}});
}

void Trainer::run_step(std::int64_t step) {
    const std::int64_t next_sample = (step - 1) * config_.train.global_batch_size;
    const double rate_factor = schedule_.factor(step);
    const StepResult result = [&] {
        try {
            return engine_->step(
                step, rate_factor,
                [&](std::int64_t micro_batch, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
                    loader_->load(next_sample, micro_batch, inputs, targets);
                });
        } catch (const NumericalError& error) {
            throw AgreedFailure(error.code(), error.what());  // follows from the agreement: all ranks are here
        }
    }();
    if (result.facts.targets == 0) {
        run_together(communicator_, [&] { loader_->raise_all_masked(next_sample); });
    }
    const auto now = std::chrono::steady_clock::now();
    interval_.add(result.facts, std::chrono::duration<double>(now - step_begin_).count());
    step_begin_ = now;
    if (step % config_.telemetry.log_interval == 0 || step == config_.train.steps) report(step, result, rate_factor);
}

void Trainer::report(std::int64_t step, const StepResult& result, double rate_factor) {
    const Interval past = std::exchange(interval_, {});
    if (!sinks_) return;
    const double step_seconds = past.mean(past.wall_seconds);
    const GlobalFacts& facts = result.facts;
    TrainRecord record;
    record.step = step;
    record.tokens_seen = step * tokens_per_step();
    record.epoch = loader_->epoch(step * config_.train.global_batch_size);
    record.loss = result.loss;
    record.targets = facts.targets;
    record.grad_norm = result.grad_norm;
    record.clip_scale = result.clip_scale;
    record.lr = config_.optimizer.element.lr * rate_factor;
    if (plan_->engine.optimizer.matrix) record.matrix_lr = config_.optimizer.matrix.lr * rate_factor;
    record.step_time_s = step_seconds;
    record.data_s = past.mean(past.longest.data_seconds);
    record.forward_s = past.mean(past.longest.forward_seconds);
    record.backward_s = past.mean(past.longest.backward_seconds);
    record.optimizer_s = past.mean(past.longest.optimizer_seconds);
    record.exposed_comm_s = past.mean(past.longest.exposed_communication_seconds);
    if (past.mean_optimizer_seconds > 0.0) {
        record.optimizer_imbalance = past.longest.optimizer_seconds / past.mean_optimizer_seconds;
    }
    record.tokens_per_s = static_cast<double>(tokens_per_step()) / step_seconds;
    record.tokens_per_s_per_rank = record.tokens_per_s / communicator_.size();
    record.tflops_per_rank =
        record.tokens_per_s_per_rank * model::flops_per_token(plan_->spec, config_.train.seq_len) / 1e12;
    record.gather_bytes = facts.gather_bytes;
    record.reduce_bytes = facts.reduce_bytes;
    record.optimizer_bytes = facts.optimizer_bytes;
    record.memory_peak_bytes = facts.memory_peak_bytes;
    record.memory_reserved_bytes = facts.memory_peak_bytes;  // pools are allocated once, at their peak
    sinks_->metrics.write(record);
    sinks_->progress.update({step, result.loss, result.grad_norm, record.lr, record.tokens_per_s, step_seconds});
}

void Trainer::export_model() {
    const std::filesystem::path directory = std::filesystem::path(config_.telemetry.run_dir) / "model";
    std::unique_ptr<model::HuggingFaceWriter> writer;
    run_together(communicator_, [&] {
        if (sinks_)
            writer = std::make_unique<model::HuggingFaceWriter>(directory, plan_->spec, config_.model_bookkeeping);
    });
    std::vector<float> values;
    for (std::size_t i = 0; i < plan_->spec.parameters.size(); ++i) {
        const model::ParameterSpec& parameter = plan_->spec.parameters[i];
        if (sinks_) values.resize(static_cast<std::size_t>(parameter.count()));
        engine_->weights().collect(static_cast<std::int64_t>(i), values);
        if (writer) writer->write(parameter, values);
    }
    run_together(communicator_, [&] {
        if (writer) writer->finish();
    });
    if (sinks_) log_->info("wrote the final weights to " + directory.string());
}

void Trainer::finish() {
    if (!sinks_) return;
    sinks_->metrics.write(EventRecord{config_.train.steps, "stop", utc_time(), {{"exit_code", std::int64_t{0}}}});
    log_->info("metrics: " + sinks_->directory.metrics_path());
}

}  // namespace

void train(const TrainConfig& config, comm::Communicator& communicator) {
    Trainer trainer(config, communicator);
    try {
        trainer.run();
    } catch (const AgreedFailure&) {
        throw;
    } catch (const std::exception&) {
        // Other ranks' transfers may still reach into this rank's memory: the job ends before the trainer does.
        if (communicator.size() > 1) (void)end_job(communicator);
        throw;
    }
}

}  // namespace mfsdp::runtime
