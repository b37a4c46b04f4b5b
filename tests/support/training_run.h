#pragma once

#include "support/model_cases.h"
#include "support/rank_run.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <vector>

namespace mfsdp::test {

/// One short training run with every choice that must not change a bit.
struct TrainingCase {
    model::ModelConfig model;
    int ranks = 1;
    runtime::Strategy strategy = runtime::Strategy::ddp;
    runtime::GatherAlgorithm gather = runtime::GatherAlgorithm::automatic;
    runtime::PlannerPolicy policy = runtime::PlannerPolicy::balanced;
    std::int64_t micro_batches = 4;
    std::int64_t sequence_length = 6;
    std::int64_t steps = 10;
    std::int64_t chunk_bytes = 1024;  // far below a group, so that every transfer has several chunks
    std::int64_t prefetch_units = 1;
    bool reshard_after_forward = true;
    bool random_order = false;  // transfers one by one in a random legal order
    device::CpuDeviceOptions device;
    double clip_grad = 0.2;
    bool use_matrix_optimizer = true;
    std::function<void(runtime::MatrixOptimizerConfig&)> optimizer;  // changes Muon's defaults; null: nothing
    optim::QkClipOptions qk_clip;
    runtime::NumberType param_dtype = runtime::NumberType::float32;
    runtime::NumberType grad_dtype = runtime::NumberType::float32;
    double z_loss = 0.0;
    model::RecomputeMode recompute = model::RecomputeMode::none;
    std::int64_t recompute_every = 1;
    std::vector<std::string> frozen;
    std::int64_t evaluated_micro_batches = 0;  // after every step; 0: no validation
    bool measures_health = false;              // in every step
    bool samples = false;                      // after every step, the token after three others
    std::int64_t poisoned_step = 0;            // its gradients are not finite; 0: none
    std::int64_t left_out_step = 0;            // not run at all; 0: none
    bool same_tokens = false;                  // in every step and evaluation, sequence by sequence
    double learning_rate = 1e-2;
    double element_epsilon = 1e-8;
    double weight_decay = 0.1;
    std::int64_t micro_batch_size = 2;
};

/// Everything that must be the same, and what was counted on the way.
struct TrainingOutcome {
    std::vector<double> losses, norms, clip_scales;
    std::vector<std::vector<float>> weights;  // by parameter index
    struct PerRank {
        std::array<std::int64_t, device::kMemoryCategories> memory{};
        runtime::PoolSizes pools;
        comm::TransferTotals transfers;
    };
    std::vector<PerRank> ranks;
    std::vector<runtime::GlobalFacts> facts;
    std::vector<bool> skipped;
    std::vector<double> z_losses;
    std::vector<runtime::MicroBatchLoss> evaluations;
    std::vector<std::int32_t> sampled;
    std::vector<runtime::MatrixHealth> health;   // of the last step
    std::vector<std::vector<float>> max_logits;  // of every step, with QK-clip
};

inline runtime::TrainConfig training_config(const TrainingCase& c) {
    runtime::TrainConfig config;
    config.model = c.model;
    config.train.steps = c.steps;
    config.train.seq_len = c.sequence_length;
    config.train.micro_batch_size = c.micro_batch_size;
    config.train.global_batch_size = c.micro_batch_size * c.micro_batches;
    config.optimizer.clip_grad = c.clip_grad;
    config.optimizer.lr = config.optimizer.matrix.lr = config.optimizer.element.lr = c.learning_rate;
    config.optimizer.matrix.name =
        c.use_matrix_optimizer ? runtime::MatrixOptimizerName::muon : runtime::MatrixOptimizerName::none;
    config.optimizer.element.eps = c.element_epsilon;
    config.optimizer.element.weight_decay = config.optimizer.matrix.weight_decay = c.weight_decay;
    if (c.optimizer) c.optimizer(config.optimizer.matrix);
    config.optimizer.qk_clip = c.qk_clip;
    config.parallel.strategy = c.strategy;
    config.parallel.planner.policy = c.policy;
    config.parallel.collectives.gather = c.gather;
    config.parallel.collectives.chunk_bytes = c.chunk_bytes;
    config.parallel.prefetch_units = c.prefetch_units;
    config.parallel.reshard_after_forward = c.reshard_after_forward;
    config.precision.param_dtype = c.param_dtype;
    config.precision.grad_dtype = c.grad_dtype;
    config.train.z_loss = c.z_loss;
    config.train.frozen = c.frozen;
    config.train.eval_interval = c.evaluated_micro_batches > 0 ? 1 : 0;
    config.train.sample_interval = c.samples ? 1 : 0;
    config.telemetry.health_interval = c.measures_health ? 1 : 0;
    config.recompute = {c.recompute, c.recompute_every};
    return config;
}

inline runtime::RunPlan training_plan(const TrainingCase& c) {
    return runtime::make_run_plan(training_config(c), std::vector<int>(static_cast<std::size_t>(c.ranks), 0));
}

/// Tokens as a function of (step, sequence of the batch) alone, with something to learn: a target follows from its
/// input. Every eleventh target is ignored, and in every third sequence half of them: the numbers of targets differ.
inline void fill_tokens(const TrainingCase& c, std::int64_t step, std::int64_t micro_batch,
                        std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
    const auto length = static_cast<std::size_t>(c.sequence_length);
    for (std::size_t row = 0; row * length < inputs.size(); ++row) {
        const std::int64_t sequence = micro_batch * c.micro_batch_size + static_cast<std::int64_t>(row);
        std::mt19937_64 random(static_cast<std::uint64_t>((c.same_tokens ? 0 : step) * 1000003 + sequence));
        for (std::size_t i = row * length; i < (row + 1) * length; ++i) {
            inputs[i] = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(c.model.vocab_size));
            const std::size_t place = i - row * length;
            const bool ignored =
                (sequence + static_cast<std::int64_t>(place)) % 11 == 5 || (sequence % 3 == 1 && place % 2 == 0);
            targets[i] = ignored ? -100 : static_cast<std::int32_t>((inputs[i] * 7 + 3) % c.model.vocab_size);
        }
    }
}

namespace training_detail {

/// Puts a value that is not finite in the place of the first weight that this rank owns; the second call puts the
/// weight back.
class Poison {
  public:
    void swap_in(runtime::Engine& engine) {
        engine.settle();
        const device::Tensor resting = engine.weights().owned().front().resting;
        auto* const halves = reinterpret_cast<std::uint16_t*>(resting.data);
        // The upper half of a float32, or a whole bfloat16.
        std::swap(halves[resting.dtype == device::DType::float32 ? 1 : 0], stored_);
    }

  private:
    std::uint16_t stored_ = 0x7FC0;
};

inline void run_rank(const TrainingCase& c, const runtime::RunPlan& run, comm::Communicator& communicator,
                     RandomOrderHub* hub, TrainingOutcome& outcome) {
    const int rank = communicator.rank();
    RankRun rank_run(run, communicator, c.device, hub);
    runtime::Engine& engine = rank_run.engine;
    engine.weights().initialise(17);
    std::int64_t updates = 0;
    for (std::int64_t step = 1; step <= c.steps; ++step) {
        const auto tokens_of = [&](std::int64_t of_step) {
            return [&c, of_step](std::int64_t micro_batch, std::span<std::int32_t> inputs,
                                 std::span<std::int32_t> targets) {
                fill_tokens(c, of_step, micro_batch, inputs, targets);
            };
        };
        if (step == c.left_out_step) continue;
        Poison poison;
        if (step == c.poisoned_step && rank == 0) poison.swap_in(engine);
        std::vector<runtime::MatrixHealth> health;
        const runtime::StepResult result =
            engine.step(updates + 1, 1.0, tokens_of(step), c.measures_health ? &health : nullptr);
        health = runtime::gather_health(communicator, health);
        updates += result.skipped ? 0 : 1;
        if (step == c.poisoned_step && rank == 0) poison.swap_in(engine);
        std::vector<runtime::MicroBatchLoss> evaluated;
        if (c.evaluated_micro_batches > 0) evaluated = engine.evaluate(c.evaluated_micro_batches, tokens_of(-1));
        const runtime::MicroBatchLoss evaluation =
            runtime::gather_losses(communicator, c.evaluated_micro_batches, evaluated);
        const std::array<std::int32_t, 3> prompt{1, 2, 3};
        const std::int32_t sampled = c.samples ? engine.next_token(prompt) : -1;
        if (rank != 0) continue;
        if (c.evaluated_micro_batches > 0) outcome.evaluations.push_back(evaluation);
        if (c.samples) outcome.sampled.push_back(sampled);
        outcome.health = health;
        outcome.skipped.push_back(result.skipped);
        outcome.z_losses.push_back(result.z_loss);
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(result.grad_norm);
        outcome.clip_scales.push_back(result.clip_scale);
        outcome.facts.push_back(result.facts);
        outcome.max_logits.emplace_back(result.facts.max_logits.begin(), result.facts.max_logits.end());
    }
    engine.compute().synchronize();
    auto& counted = outcome.ranks[static_cast<std::size_t>(rank)];
    for (std::int64_t category = 0; category < device::kMemoryCategories; ++category) {
        counted.memory[static_cast<std::size_t>(category)] =
            engine.memory().peak(static_cast<device::MemoryCategory>(category));
    }
    counted.pools = engine.high_water();
    std::vector<std::vector<float>> weights = rank_run.collect();
    if (rank == 0) outcome.weights = std::move(weights);
    counted.transfers = rank_run.executor->totals();
}

}  // namespace training_detail

/// Trains with one thread per rank.
inline TrainingOutcome run_training(const TrainingCase& c) {
    const runtime::RunPlan run = training_plan(c);
    TrainingOutcome outcome;
    outcome.ranks.resize(static_cast<std::size_t>(c.ranks));
    comm::ThreadCluster cluster(c.ranks);
    std::unique_ptr<RandomOrderHub> hub;
    if (c.random_order) hub = std::make_unique<RandomOrderHub>(c.ranks, 5);
    cluster.run([&](comm::Communicator& communicator) {
        try {
            training_detail::run_rank(c, run, communicator, hub.get(), outcome);
        } catch (...) {
            if (hub) hub->stop();
            throw;
        }
    });
    return outcome;
}

/// Shapes whose rows, matrices and micro-batches do not divide evenly.
inline model::ModelConfig uneven_gpt2() { return gpt2_case("", true).config; }
inline model::ModelConfig uneven_llama() { return llama_case("", 2, true, false).config; }

}  // namespace mfsdp::test
