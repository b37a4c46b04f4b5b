#include "mfsdp/runtime/train/rehearsal.h"

#include "support/catch.h"
#include "support/training_run.h"

#include <algorithm>

using namespace mfsdp;
using runtime::Strategy;
using test::TrainingCase;

TEST_CASE("memory by category and bytes moved equal the rehearsal on every rank") {
    for (const model::ModelConfig& model : {test::uneven_gpt2(), test::uneven_llama()}) {
        for (const Strategy strategy : {Strategy::ddp, Strategy::zero1_owner, Strategy::matrix_fsdp}) {
            for (const int ranks : {1, 2, 3, 8}) {
                TrainingCase c;
                c.model = model;
                c.strategy = strategy;
                c.ranks = ranks;
                c.micro_batches = 5;
                c.steps = 3;
                INFO("strategy " << static_cast<int>(strategy) << ", ranks " << ranks);
                const runtime::RunPlan run = test::training_plan(c);
                const test::TrainingOutcome outcome = test::run_training(c);
                std::int64_t moved = 0, gathered = 0, reduced = 0, published = 0;
                for (int rank = 0; rank < ranks; ++rank) {
                    INFO("rank " << rank);
                    const runtime::Rehearsal rehearsal = runtime::rehearse(run, rank);
                    const auto& counted = outcome.ranks[static_cast<std::size_t>(rank)];
                    REQUIRE(rehearsal.total_memory() > 0);
                    CHECK(counted.memory == rehearsal.memory);
                    CHECK(counted.pools.gathered == rehearsal.pools.gathered);
                    CHECK(counted.pools.gradient_buffers == rehearsal.pools.gradient_buffers);
                    CHECK(counted.pools.activations == rehearsal.pools.activations);
                    CHECK(counted.pools.workspace == rehearsal.pools.workspace);
                    gathered += rehearsal.transfers.bytes_sent[0] - rehearsal.optimizer_bytes_sent;
                    reduced += rehearsal.transfers.bytes_sent[1];
                    published += rehearsal.optimizer_bytes_sent;
                    moved += rehearsal.transfers.bytes_sent[0] + rehearsal.transfers.bytes_sent[1];
                }
                REQUIRE((ranks == 1 || moved > 0));
                for (std::size_t step = 0; step < outcome.facts.size(); ++step) {
                    CHECK(outcome.facts[step].gather_bytes == gathered);
                    CHECK(outcome.facts[step].reduce_bytes == reduced);
                    CHECK(outcome.facts[step].optimizer_bytes == (step == 0 ? 0 : published));  // the step before
                }
                if (strategy == Strategy::zero1_owner) CHECK((ranks == 1 || published > 0));
                if (strategy == Strategy::matrix_fsdp) CHECK(published == 0);
                if (strategy == Strategy::ddp) CHECK(gathered + published == 0);
            }
        }
    }
}

TEST_CASE("gathered bytes never exceed those of 1 + prefetch_units consecutive units") {
    for (const std::int64_t prefetch : {0, 1, 2}) {
        TrainingCase c;
        c.model = test::uneven_llama();
        c.model.num_hidden_layers = 6;
        c.ranks = 3;
        c.strategy = Strategy::matrix_fsdp;
        c.prefetch_units = prefetch;
        const runtime::RunPlan run = test::training_plan(c);
        for (int rank = 0; rank < c.ranks; ++rank) {
            std::vector<std::int64_t> unit_bytes;
            for (const runtime::Visit& visit : runtime::visit_sequence(run.spec, run.plan, model::Purpose::train, 1)) {
                std::int64_t bytes = 0;
                for (const std::int64_t group : visit.reads) {
                    bytes +=
                        device::align_up(4 * runtime::GroupLayout(run.spec, run.plan, group).gathered_elements(rank));
                }
                unit_bytes.push_back(bytes);
            }
            std::int64_t limit = 0;
            for (std::size_t first = 0; first < unit_bytes.size(); ++first) {
                std::int64_t sum = 0;
                for (std::size_t i = first;
                     i < std::min(unit_bytes.size(), first + 1 + static_cast<std::size_t>(prefetch)); ++i) {
                    sum += unit_bytes[i];
                }
                limit = std::max(limit, sum);
            }
            const runtime::Rehearsal rehearsal = runtime::rehearse(run, rank);
            REQUIRE(rehearsal.peak_gathered_bytes > 0);
            INFO("prefetch " << prefetch << ", rank " << rank);
            CHECK(rehearsal.peak_gathered_bytes <= limit);
            // The pool itself loses no more than what lies between blocks at the head: a panel and the last norm.
            const std::int64_t head_bytes = *std::min_element(unit_bytes.begin() + run.spec.head_unit(),
                                                              unit_bytes.begin() + run.spec.head_unit() + 2);
            REQUIRE(head_bytes > 0);
            CHECK(rehearsal.pools.gathered <=
                  (1 + prefetch) * *std::max_element(unit_bytes.begin(), unit_bytes.end()) + head_bytes);
        }
    }
}

TEST_CASE("optimizer FLOPs of a rehearsal follow what each rank owns") {
    TrainingCase c;
    c.model = test::uneven_llama();
    c.ranks = 3;
    c.strategy = Strategy::matrix_fsdp;
    const runtime::RunPlan run = test::training_plan(c);
    const std::vector<runtime::RankLoad> loads = runtime::rank_loads(
        run.plan, {run.spec, run.roles, run.costs, run.mesh, c.strategy, test::training_config(c).parallel.planner});
    std::int64_t total = 0;
    for (int rank = 0; rank < c.ranks; ++rank) {
        const std::int64_t flops = runtime::rehearse(run, rank).optimizer_flops;
        const optim::StepCost cost = runtime::optimizer_cost(run, rank, 1);
        // The plan counts products; momentum, norms and copies of Muon and AdamW come on top.
        CHECK(flops >= cost.flops());
        CHECK(cost.flops() > 0);
        // What is balanced is that step, other work weighed as products that take as long.
        const auto planned = static_cast<double>(loads[static_cast<std::size_t>(rank)].flops);
        CHECK(planned == Approx(static_cast<double>(cost.weighed_flops())).epsilon(0.01));
        CHECK(cost.weighed_flops() > cost.flops());
        total += flops;
    }
    REQUIRE(total > 0);
}
