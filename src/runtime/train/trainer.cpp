#include "mfsdp/runtime/train/trainer.h"

#include "mfsdp/base/counted.h"
#include "mfsdp/base/error.h"
#include "mfsdp/base/hash64.h"
#include "mfsdp/base/stopwatch.h"
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
#include "mfsdp/runtime/train/evaluation.h"
#include "mfsdp/runtime/train/export.h"
#include "mfsdp/runtime/train/launch.h"
#include "mfsdp/runtime/train/rehearsal.h"
#include "mfsdp/runtime/train/report.h"
#include "mfsdp/runtime/train/run_records.h"
#include "mfsdp/runtime/train/sampler.h"
#include "mfsdp/version.h"

#include <algorithm>
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

std::string describe_earlier_run(const TrainConfig& config) {
    std::string text = "telemetry.run_dir = " + config.telemetry.run_dir +
                       " holds an earlier run: its metrics and logs go on, its config.resolved.json is replaced";
    if (config.checkpoint.export_at_end) text += ", at the end also its model";
    return text;
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

class Trainer {
  public:
    Trainer(const TrainConfig& config, comm::Communicator& communicator, const MachineOptions& options)
        : config_(config), communicator_(communicator) {
        communicator_.set_timeout_seconds(static_cast<double>(config.parallel.init_timeout_seconds));
        run_together(communicator_, [&] { machine_ = choose_machine(config_, communicator_, options); });
        config_.device = choice_of(machine_);
        run_together(communicator_, [&] { plan(); });
        run_together(communicator_, [&] { comm::compare_startup_facts(communicator_, startup_facts()); });
        run_together(communicator_, [&] { open_sinks(); });
        run_together(communicator_, [&] { rehearse_run(); });
        run_together(communicator_, [&] { build(); });
        run_together(communicator_, [&] { comm::compare_message_lists(communicator_, engine_->schedules()); });
        communicator_.set_timeout_seconds(static_cast<double>(config.parallel.train_timeout_seconds));
    }

    void run() {
        set_initial_weights();
        announce();
        step_begin_ = base::now_seconds();  // the first step's time is without the start-up
        for (std::int64_t step = 1; step <= config_.train.steps; ++step) {
            run_step(step);
            if (step == 1) log_remarks();
            if (due(config_.train.eval_interval, step)) run_evaluation(step);
            if (due(config_.train.sample_interval, step)) run_sample(step);
        }
        engine_->settle();
        if (sinks_) sinks_->progress.finish();
        if (config_.checkpoint.export_at_end) export_model();
        finish();
    }

  private:
    void plan();
    void require_decompositions() const;
    void open_sinks();
    void rehearse_run();
    void build();
    void set_initial_weights();
    void announce();
    void run_step(std::int64_t step);
    void log_remarks();
    void count_skip(std::int64_t step, const StepResult& result);
    void report(const RunPosition& position, const StepResult& result);
    void warn_of_failed_refresh(std::int64_t step, const RefreshFailures& failures);
    void report_health(std::int64_t step, const std::vector<MatrixHealth>& mine);
    void run_evaluation(std::int64_t step);
    void run_sample(std::int64_t step);
    void export_model();
    [[nodiscard]] std::filesystem::path export_directory() const {
        return std::filesystem::path(config_.telemetry.run_dir) / "model";
    }
    void finish();
    [[nodiscard]] std::vector<comm::StartupFacts> startup_facts() const;
    /// Every `interval` steps and after the last one; never if 0.
    [[nodiscard]] bool due(std::int64_t interval, std::int64_t step) const {
        return interval > 0 && (step % interval == 0 || step == config_.train.steps);
    }
    [[nodiscard]] DataOptions data_options(const std::vector<std::string>& patterns) const;

    TrainConfig config_;  // with the device that was chosen
    comm::Communicator& communicator_;
    Machine machine_;
    std::unique_ptr<Log> log_;
    std::unique_ptr<Sinks> sinks_;  // rank 0
    std::optional<RunPlan> plan_;
    Rehearsal rehearsal_;
    std::unique_ptr<BatchLoader> loader_;
    std::unique_ptr<ValidationLoader> validation_;
    std::unique_ptr<Sampler> sampler_;
    std::vector<std::string> hosts_;  // by rank
    optim::LearningRateSchedule schedule_;
    std::int64_t ranks_on_node_ = 1;
    int threads_ = 1;
    std::unique_ptr<device::Device> device_;
    std::unique_ptr<comm::Executor> executor_;
    std::unique_ptr<RankAgreement> agreement_;
    std::unique_ptr<Engine> engine_;

    StepInterval interval_;  // since the last line of metrics
    double step_begin_ = 0.0;
    std::int64_t updates_ = 0;  // applied
    std::int64_t skips_ = 0, consecutive_skips_ = 0;
    RefreshFailures failures_;  // as last seen
};

DataOptions Trainer::data_options(const std::vector<std::string>& patterns) const {
    return {patterns,
            config_.data.format,
            config_.data.mask_alignment,
            config_.model.vocab_size,
            config_.train.seq_len,
            config_.train.micro_batch_size,
            config_.train.global_batch_size,
            config_.data.shuffle,
            static_cast<std::uint64_t>(config_.data.seed)};
}

void Trainer::plan() {
    const std::vector<int> nodes = communicator_.node_of_rank();
    plan_.emplace(make_run_plan(config_, nodes));
    choose_transfers(*plan_);
    const int node = nodes[static_cast<std::size_t>(communicator_.rank())];
    ranks_on_node_ = std::count(nodes.begin(), nodes.end(), node);
    threads_ = resolve_threads(config_, ranks_on_node_);
    loader_ = std::make_unique<BatchLoader>(data_options(config_.data.train));
    if (config_.train.eval_interval > 0) {
        validation_ = std::make_unique<ValidationLoader>(data_options(config_.data.valid), config_.train.eval_samples);
    }
    if (config_.train.sample_interval > 0) {
        std::int32_t first_token = 0;
        loader_->stream().read(0, std::span(&first_token, 1));
        sampler_ = std::make_unique<Sampler>(config_, first_token);
    }
    schedule_ = {config_.optimizer.warmup_steps, config_.optimizer.decay_steps, config_.train.steps,
                 config_.optimizer.decay_style, config_.optimizer.min_lr / config_.optimizer.lr};
    device_ = make_device(machine_, config_, threads_);
    require_decompositions();
}

void Trainer::require_decompositions() const {
    const MatrixOptimizerConfig& matrix = config_.optimizer.matrix;
    const bool needed =
        matrix.name == MatrixOptimizerName::soap ||
        (matrix.name == MatrixOptimizerName::shampoo && matrix.shampoo.root_method == optim::RootMethod::eigen);
    if (!needed || device_->kind() != device::DeviceKind::cpu || device::cpu_has_lapack()) return;
    throw ConfigError("config: optimizer.matrix.name = " + std::string(name(matrix.name)) +
                      ": this program was built without OpenBLAS, whose LAPACK decomposes matrices on the CPU");
}

void Trainer::open_sinks() {
    LogOptions log{resolve_log_level(config_), communicator_.rank(), communicator_.rank() == 0, false, ""};
    if (communicator_.rank() == 0) {
        if (config_.checkpoint.export_at_end) model::require_replaceable(export_directory());
        const std::vector<std::string> choices{"parallel.mesh.shard=" + std::to_string(plan_->mesh.shard),
                                               "threads=" + std::to_string(threads_),
                                               "device=" + std::string(name(config_.device))};
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
            {"validation data", validation_ ? base::hash64_text(validation_->stream().fingerprint()) : "none"},
            {"link costs", plan_->engine.store.links.text()},
            {"device", device_->description()}};
}

void Trainer::rehearse_run() {
    rehearsal_ = rehearse(*plan_, communicator_.rank());
    // A GPU says itself what does not fit.
    if (machine_.kind == device::DeviceKind::cpu) require_memory(rehearsal_, ranks_on_node_);
}

void Trainer::build() {
    executor_ = make_executor(machine_, config_, communicator_, *device_);
    agreement_ = std::make_unique<RankAgreement>(communicator_, plan_->engine.micro_batches, plan_->engine.max_logits);
    try {
        engine_ = std::make_unique<Engine>(Engine::Parts{plan_->spec, plan_->plan, plan_->mesh, communicator_.rank(),
                                                         *device_, *executor_, *agreement_},
                                           plan_->engine, rehearsal_.pools);
    } catch (const OutOfMemoryError& error) {
        throw OutOfMemoryError(std::string(error.what()) + "; rehearsed " + describe_memory(rehearsal_) +
                               "; use a smaller train.micro_batch_size, recompute.mode = block or more ranks " +
                               "(mfsdp-plan shows what fits)");
    }
}

void Trainer::set_initial_weights() {
    if (!config_.init_from) {
        engine_->weights().initialise(static_cast<std::uint64_t>(config_.train.seed));
        return;
    }
    run_together(communicator_, [&] {
        const model::HuggingFaceReader reader(*config_.init_from, plan_->spec);
        if (communicator_.rank() == 0) {
            for (const std::string& name : reader.passed_over()) log_->info("weights: passed over " + name);
        }
        // Padding between parameters must not be left undefined; every value is overwritten.
        engine_->weights().initialise(static_cast<std::uint64_t>(config_.train.seed));
        engine_->weights().load(
            [&](std::int64_t parameter, std::int64_t row_begin, std::int64_t row_count, std::span<float> values) {
                const model::ParameterSpec& spec = plan_->spec.parameters[static_cast<std::size_t>(parameter)];
                reader.read_rows(spec, row_begin, row_count, values);
            });
    });
}

void Trainer::announce() {
    hosts_ = host_of_rank(communicator_);
    if (!sinks_) return;
    for (const std::string& notice : config_.notices) log_->info(notice);
    if (sinks_->directory.had_a_run()) log_->warn(describe_earlier_run(config_));
    if (!machine_.notice.empty()) log_->warn(machine_.notice);
    const std::int64_t micro_steps = (plan_->engine.micro_batches + plan_->plan.ranks - 1) / plan_->plan.ranks;
    log_->info(describe_run(*plan_, config_, threads_, device_->description()));
    log_->info(optim::routing_table(plan_->spec, plan_->roles, std::string(name(config_.optimizer.matrix.name)),
                                    plan_->frozen));
    if (config_.init_from) log_->info("weights: from " + *config_.init_from);
    log_->info(describe_memory(rehearsal_));
    log_->debug(describe_start(*plan_, config_, rehearsal_, communicator_.rank()));
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
        log_->debug("rank " + std::to_string(rank) + " is on " + hosts_[rank]);
    }
    for (const TokenFile& file : loader_->stream().files()) {
        log_->debug("data: " + file.path + ": " + base::counted(file.tokens, "token"));
    }
    if (const std::int64_t unused = loader_->unused_tokens(); unused > 0) {
        log_->info("data: no sample has the last " + base::counted(unused, "token"));
    }
    if (const std::int64_t idle = micro_steps * plan_->plan.ranks - plan_->engine.micro_batches; idle > 0) {
        log_->info(describe_idle(idle, micro_steps * plan_->plan.ranks));
    }
    sinks_->metrics.write(run_record(config_, *plan_, device_->description(), loader_->samples_per_epoch()));
    sinks_->metrics.write(EventRecord{0, "start", utc_time(), {}});
}

void Trainer::log_remarks() {
    const std::string remarks = device_->remarks();
    if (sinks_ && !remarks.empty()) log_->info("device: " + remarks);
}

void Trainer::run_step(std::int64_t step) {
    const std::int64_t next_sample = (step - 1) * config_.train.global_batch_size;
    const double rate_factor = schedule_.factor(step);
    const bool measures = plan_->engine.measures_health && step % config_.telemetry.health_interval == 0;
    std::vector<MatrixHealth> health;
    const StepResult result = engine_->step(
        updates_ + 1, rate_factor,
        [&](std::int64_t micro_batch, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
            loader_->load(next_sample, micro_batch, inputs, targets);
        },
        measures ? &health : nullptr);
    if (result.facts.loss.targets == 0) {
        run_together(communicator_, [&] { loader_->raise_all_masked(next_sample); });
    }
    updates_ += result.skipped ? 0 : 1;
    skips_ += result.skipped ? 1 : 0;
    consecutive_skips_ = result.skipped ? consecutive_skips_ + 1 : 0;
    const double now = base::now_seconds();
    interval_.add(result.facts, now - step_begin_);
    step_begin_ = now;
    if (step % config_.telemetry.log_interval == 0 || step == config_.train.steps || result.skipped) {
        report({step, loader_->epoch(step * config_.train.global_batch_size), rate_factor, skips_}, result);
    }
    warn_of_failed_refresh(step, result.facts.refresh_failures);
    if (result.skipped) count_skip(step, result);
    if (measures && !result.skipped) report_health(step, health);
}

void Trainer::warn_of_failed_refresh(std::int64_t step, const RefreshFailures& failures) {
    const bool known = failures.in_a_row == failures_.in_a_row && failures.matrix == failures_.matrix;
    failures_ = failures;
    if (failures.in_a_row == 0 || known || !sinks_) return;
    const std::string name = matrix_name(plan_->spec, plan_->roles, plan_->engine.optimizer.blocks, failures.matrix);
    sinks_->metrics.write(
        EventRecord{step - 1, "refresh_failure", utc_time(), {{"matrix", name}, {"consecutive", failures.in_a_row}}});
    log_->warn("optimizer: step " + std::to_string(step - 1) + ": " + std::to_string(failures.in_a_row) +
               " failed refreshes in a row of " + name + ", which keeps its last good root or basis; allowed are " +
               std::to_string(plan_->engine.optimizer.max_refresh_failures) +
               " (optimizer.matrix.max_refresh_failures)");
}

void Trainer::report_health(std::int64_t step, const std::vector<MatrixHealth>& mine) {
    const std::vector<MatrixHealth> all = gather_health(communicator_, mine);
    if (!sinks_) return;
    for (const MatrixHealth& health : all) {
        sinks_->metrics.write(HealthRecord{step,
                                           plan_->spec.parameters[static_cast<std::size_t>(health.parameter)].name,
                                           health.update_ratio, health.orthogonality_error, health.gradient_rms});
    }
}

void Trainer::count_skip(std::int64_t step, const StepResult& result) {
    const std::string what = "train: step " + std::to_string(step) + ": loss " + std::to_string(result.loss) + ", " +
                             std::to_string(result.facts.nonfinite_rows) +
                             " gradient rows are not finite; nothing was updated";
    if (sinks_) {
        sinks_->metrics.write(
            EventRecord{step,
                        "skip",
                        utc_time(),
                        {{"nonfinite_rows", result.facts.nonfinite_rows}, {"consecutive", consecutive_skips_}}});
        log_->warn(what);
    }
    // All ranks act on the same facts, so all are here.
    if (config_.train.nonfinite == NonfinitePolicy::stop) {
        throw AgreedFailure(ExitCode::numerical, what + " (train.nonfinite = stop)");
    }
    if (consecutive_skips_ > config_.train.max_consecutive_skips) {
        throw AgreedFailure(ExitCode::numerical,
                            what + "; " + std::to_string(consecutive_skips_) + " skipped steps in a row, allowed are " +
                                std::to_string(config_.train.max_consecutive_skips) + " (train.max_consecutive_skips)");
    }
}

void Trainer::report(const RunPosition& position, const StepResult& result) {
    const StepInterval past = std::exchange(interval_, {});
    if (!sinks_) return;
    const TrainRecord record = train_record(config_, *plan_, position, result, past);
    sinks_->metrics.write(record);
    ProgressUpdate update{record.step, record.loss,         record.grad_norm,
                          record.lr,   record.tokens_per_s, record.step_time_s};
    if (communicator_.size() > 1) {
        const int slowest = result.facts.slowest_rank;
        update.slowest = "rank " + std::to_string(slowest) + " (" + hosts_[static_cast<std::size_t>(slowest)] + ")";
    }
    sinks_->progress.update(update);
}

void Trainer::run_evaluation(std::int64_t step) {
    const Evaluation result = evaluate(*engine_, communicator_, *validation_);
    step_begin_ += result.seconds;
    if (!sinks_) return;
    sinks_->metrics.write(EvalRecord{step, result.loss, result.targets, result.seconds});
    sinks_->progress.finish();
    log_->info("step " + std::to_string(step) + ": validation loss " + std::to_string(result.loss) + " over " +
               std::to_string(result.targets) + " targets");
}

void Trainer::run_sample(std::int64_t step) {
    const double begin = base::now_seconds();
    const std::string text = sampler_->run(*engine_, communicator_.rank());
    step_begin_ += base::now_seconds() - begin;
    if (!sinks_) return;
    sinks_->metrics.write(EventRecord{step, "sample", utc_time(), {{"text", text}}});
    sinks_->progress.finish();
    log_->info("step " + std::to_string(step) + ": sample: " + text);
}

void Trainer::export_model() {
    const std::filesystem::path directory = export_directory();
    export_weights(engine_->weights(), plan_->spec, communicator_,
                   {directory, config_.model_bookkeeping, plan_->engine.store.param_dtype});
    if (sinks_) log_->info("wrote the final weights to " + directory.string());
}

void Trainer::finish() {
    if (!sinks_) return;
    sinks_->metrics.write(EventRecord{config_.train.steps, "stop", utc_time(), {{"exit_code", std::int64_t{0}}}});
    log_->info("metrics: " + sinks_->directory.metrics_path());
}

}  // namespace

void train(const TrainConfig& config, comm::Communicator& communicator, const MachineOptions& options) {
    Trainer trainer(config, communicator, options);
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
