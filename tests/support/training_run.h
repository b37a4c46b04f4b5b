#pragma once

#include "mfsdp/comm/communicator.h"
#include "mfsdp/comm/executor.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/runtime/train/rehearsal.h"

#include "support/model_cases.h"
#include "support/random_order_executor.h"

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
};

inline runtime::TrainConfig training_config(const TrainingCase& c) {
    runtime::TrainConfig config;
    config.model = c.model;
    config.train.steps = c.steps;
    config.train.seq_len = c.sequence_length;
    config.train.micro_batch_size = 2;
    config.train.global_batch_size = 2 * c.micro_batches;
    config.optimizer.clip_grad = c.clip_grad;
    config.optimizer.lr = config.optimizer.matrix.lr = config.optimizer.element.lr = 1e-2;
    config.optimizer.matrix.name =
        c.use_matrix_optimizer ? runtime::MatrixOptimizerName::muon : runtime::MatrixOptimizerName::none;
    config.parallel.strategy = c.strategy;
    config.parallel.planner.policy = c.policy;
    config.parallel.collectives.gather = c.gather;
    config.parallel.collectives.chunk_bytes = c.chunk_bytes;
    config.parallel.prefetch_units = c.prefetch_units;
    config.parallel.reshard_after_forward = c.reshard_after_forward;
    return config;
}

inline runtime::RunPlan training_plan(const TrainingCase& c) {
    return runtime::make_run_plan(training_config(c), std::vector<int>(static_cast<std::size_t>(c.ranks), 0));
}

/// Tokens as a function of (step, micro-batch) alone, with something to learn: a target follows from its input. Every
/// eleventh target is ignored.
inline void fill_tokens(const TrainingCase& c, std::int64_t step, std::int64_t micro_batch,
                        std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
    std::mt19937_64 random(static_cast<std::uint64_t>(step * 1000003 + micro_batch));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        inputs[i] = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(c.model.vocab_size));
        targets[i] = i % 11 == 5 ? -100 : static_cast<std::int32_t>((inputs[i] * 7 + 3) % c.model.vocab_size);
    }
}

namespace training_detail {

inline void run_rank(const TrainingCase& c, const runtime::RunPlan& run, comm::Communicator& communicator,
                     RandomOrderHub* hub, TrainingOutcome& outcome) {
    const int rank = communicator.rank();
    const std::unique_ptr<device::Device> device = device::make_cpu_device(c.device);
    const std::unique_ptr<comm::Executor> executor =
        hub != nullptr             ? hub->make_executor(rank, *device)
        : communicator.size() == 1 ? comm::make_self_executor(*device)
                                   : comm::make_progress_executor(communicator, *device, {.timeout_seconds = 60});
    runtime::RankAgreement agreement(communicator, run.engine.micro_batches);
    const runtime::Rehearsal rehearsal = runtime::rehearse(run, rank);
    runtime::Engine engine({run.spec, run.plan, run.mesh, rank, *device, *executor, agreement}, run.engine,
                           rehearsal.pools);
    engine.weights().initialise(17);
    for (std::int64_t step = 1; step <= c.steps; ++step) {
        const runtime::StepResult result = engine.step(
            step, 1.0, [&](std::int64_t micro_batch, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
                fill_tokens(c, step, micro_batch, inputs, targets);
            });
        if (rank != 0) continue;
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(result.grad_norm);
        outcome.clip_scales.push_back(result.clip_scale);
        outcome.facts.push_back(result.facts);
    }
    engine.compute().synchronize();
    auto& counted = outcome.ranks[static_cast<std::size_t>(rank)];
    for (std::int64_t category = 0; category < device::kMemoryCategories; ++category) {
        counted.memory[static_cast<std::size_t>(category)] =
            engine.memory().peak(static_cast<device::MemoryCategory>(category));
    }
    counted.pools = engine.high_water();
    for (std::size_t i = 0; i < run.spec.parameters.size(); ++i) {
        std::vector<float> values(rank == 0 ? static_cast<std::size_t>(run.spec.parameters[i].count()) : 0);
        engine.weights().collect(static_cast<std::int64_t>(i), values);
        if (rank == 0) outcome.weights.push_back(std::move(values));
    }
    counted.transfers = executor->totals();
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
