#include "support/catch.h"
#include "support/host_allocations.h"
#include "support/training_run.h"

using namespace mfsdp;

namespace {

/// Allocations of the fourth step: the first ones may still bring containers to their size.
std::int64_t allocations_of_a_later_step(const test::TrainingCase& c) {
    const runtime::RunPlan run = test::training_plan(c);
    const std::unique_ptr<comm::Communicator> communicator = comm::make_self_communicator();
    test::RankRun rank_run(run, *communicator, c.device);
    runtime::Engine& engine = rank_run.engine;
    engine.weights().initialise(3);
    // Not the business of the engine, so made before.
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(c.micro_batch_size * c.sequence_length));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i % 7);
    const runtime::LoadMicroBatch load = [&](std::int64_t, std::span<std::int32_t> inputs,
                                             std::span<std::int32_t> targets) {
        std::copy(tokens.begin(), tokens.end(), inputs.begin());
        std::copy(tokens.rbegin(), tokens.rend(), targets.begin());
    };
    std::int64_t before = 0;
    for (std::int64_t step = 1; step <= 4; ++step) {
        before = test::host_allocations;
        const runtime::StepResult result = engine.step(step, 1.0, load);
        REQUIRE(result.facts.loss.targets > 0);
    }
    return test::host_allocations - before;
}

}  // namespace

TEST_CASE("a training step allocates no host memory") {
    for (const bool gpt2 : {true, false}) {
        test::TrainingCase c;
        c.model = gpt2 ? test::uneven_gpt2() : test::uneven_llama();
        c.micro_batches = 3;
        CHECK(allocations_of_a_later_step(c) == 0);
        for (const runtime::MatrixOptimizerName name :
             {runtime::MatrixOptimizerName::shampoo, runtime::MatrixOptimizerName::soap}) {
            if (!device::cpu_has_lapack()) continue;
            c.optimizer = [name](runtime::MatrixOptimizerConfig& config) {
                config.name = name;
                config.shampoo.precondition_frequency = config.soap.precondition_frequency = 1;
            };
            CHECK(allocations_of_a_later_step(c) == 0);
        }
        c.optimizer = nullptr;
        c.use_matrix_optimizer = false;
        CHECK(allocations_of_a_later_step(c) == 0);
        c.recompute = model::RecomputeMode::block;
        c.z_loss = 1e-3;
        c.frozen = {gpt2 ? "*.h.0.mlp.*" : "model.layers.0.mlp.*"};
        CHECK(allocations_of_a_later_step(c) == 0);
    }
}
