#include "mfsdp/base/error.h"

#include "support/catch.h"
#include "support/lapack.h"
#include "support/training_run.h"

#include <algorithm>

// Every matrix optimizer in the whole engine: the bits of any number of ranks and every strategy, memory as rehearsed,
// skipped steps, and what becomes of a run whose decompositions fail.

using namespace mfsdp;
using runtime::MatrixOptimizerConfig;
using runtime::MatrixOptimizerName;
using runtime::Strategy;
using test::run_training;
using test::TrainingCase;
using test::TrainingOutcome;

namespace {

struct OptimizerCase {
    std::string name;
    std::function<void(MatrixOptimizerConfig&)> set;
    bool needs_lapack = true;
};

/// Refreshes come in several of the steps, and not for all matrices in the same.
const std::vector<OptimizerCase>& optimizer_cases() {
    static const std::vector<OptimizerCase> cases{
        {"muon", [](MatrixOptimizerConfig& config) { config.muon.num_ns_steps = 4; }, false},
        {"normuon, cautious, heads apart",
         [](MatrixOptimizerConfig& config) {
             config.muon.normuon = true;
             config.muon.cautious_weight_decay = true;
             config.split_heads = true;
         },
         false},
        {"muon, gram", [](MatrixOptimizerConfig& config) { config.muon.ns_method = optim::NewtonSchulzMethod::gram; },
         false},
        {"muon, bfloat16", [](MatrixOptimizerConfig& config) { config.muon.ns_dtype = device::DType::bfloat16; },
         false},
        {"muon, gram in float16",
         [](MatrixOptimizerConfig& config) {
             config.muon.ns_dtype = device::DType::float16;
             config.muon.ns_method = optim::NewtonSchulzMethod::gram;
         },
         false},
        {"shampoo",
         [](MatrixOptimizerConfig& config) {
             config.name = MatrixOptimizerName::shampoo;
             config.shampoo.start_step = 2;
             config.shampoo.precondition_frequency = 3;
             config.shampoo.stagger_refresh = true;
         }},
        {"shampoo, sums, one side, heads apart",
         [](MatrixOptimizerConfig& config) {
             config.name = MatrixOptimizerName::shampoo;
             config.split_heads = true;
             config.shampoo.beta2 = 1.0;
             config.shampoo.grafting = optim::Grafting::adagrad;
             config.shampoo.precondition_frequency = 2;
             config.shampoo.max_preconditioner_dim = 26;
         }},
        {"shampoo, coupled Newton",
         [](MatrixOptimizerConfig& config) {
             config.name = MatrixOptimizerName::shampoo;
             config.shampoo.root_method = optim::RootMethod::coupled_newton;
             config.shampoo.epsilon = 1e-3;
             config.shampoo.precondition_frequency = 2;
         },
         false},
        {"soap",
         [](MatrixOptimizerConfig& config) {
             config.name = MatrixOptimizerName::soap;
             config.soap.precondition_frequency = 3;
             config.soap.stagger_refresh = true;
             config.soap.epsilon_mode = optim::BiasEpsilon::corrected;
             config.soap.decay_order = optim::DecayOrder::before;
         }},
        {"soap, one side, every step, first step taken", [](MatrixOptimizerConfig& config) {
             config.name = MatrixOptimizerName::soap;
             config.soap.precondition_frequency = 1;
             config.soap.one_sided = true;
             config.soap.normalize_update = true;
             config.soap.skip_first_step = false;
             config.soap.epsilon = 1e-2;
         }}};
    return cases;
}

/// Calls body(case) for every optimizer that this program can run.
template <class Body>
void for_optimizers(const Body& body) {
    for (const OptimizerCase& optimizer : optimizer_cases()) {
        if (optimizer.needs_lapack && !device::cpu_has_lapack()) {
            WARN(optimizer.name << " skipped: this program was built without LAPACK");
            continue;
        }
        INFO(optimizer.name);
        body(optimizer);
    }
}

TrainingCase small_case(const model::ModelConfig& model, const OptimizerCase& optimizer) {
    TrainingCase c;
    c.model = model;
    c.micro_batches = 5;
    c.steps = 6;
    c.optimizer = optimizer.set;
    return c;
}

void require_same_weights(const TrainingOutcome& outcome, const TrainingOutcome& reference) {
    REQUIRE(reference.weights.size() > 10);
    REQUIRE(outcome.weights.size() == reference.weights.size());
    for (std::size_t i = 0; i < reference.weights.size(); ++i) {
        INFO("parameter " << i);
        REQUIRE(!reference.weights[i].empty());
        REQUIRE(outcome.weights[i] == reference.weights[i]);
    }
}

}  // namespace

TEST_CASE("every optimizer gives the same bits on any ranks under every strategy") {
    for_optimizers([](const OptimizerCase& optimizer) {
        for (const model::ModelConfig& model : {test::uneven_gpt2(), test::uneven_llama()}) {
            TrainingCase c = small_case(model, optimizer);
            const TrainingOutcome reference = run_training(c);
            REQUIRE(reference.losses.back() < reference.losses.front());
            for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8}) {
                for (const Strategy strategy : {Strategy::ddp, Strategy::zero1_owner, Strategy::matrix_fsdp}) {
                    c.ranks = ranks;
                    c.strategy = strategy;
                    c.device.threads = 1 + ranks % 2;
                    INFO("ranks " << ranks << ", strategy " << static_cast<int>(strategy));
                    const TrainingOutcome outcome = run_training(c);
                    REQUIRE(outcome.losses == reference.losses);
                    require_same_weights(outcome, reference);
                }
            }
        }
    });
}

TEST_CASE("no two optimizers of the table give the same weights") {
    std::vector<std::vector<std::vector<float>>> all;
    for_optimizers([&](const OptimizerCase& optimizer) {
        all.push_back(run_training(small_case(test::uneven_llama(), optimizer)).weights);
        for (std::size_t i = 0; i + 1 < all.size(); ++i) CHECK(all[i] != all.back());
    });
    CHECK(all.size() >= 3);
}

TEST_CASE("every optimizer's memory and workspace are those of the rehearsal, and no step takes more") {
    for_optimizers([](const OptimizerCase& optimizer) {
        for (const int ranks : {1, 3}) {
            TrainingCase c = small_case(test::uneven_gpt2(), optimizer);
            c.ranks = ranks;
            c.strategy = Strategy::matrix_fsdp;
            c.steps = 8;
            const runtime::RunPlan run = test::training_plan(c);
            const TrainingOutcome outcome = run_training(c);
            for (int rank = 0; rank < ranks; ++rank) {
                INFO("rank " << rank << " of " << ranks);
                const runtime::Rehearsal rehearsal = runtime::rehearse(run, rank);
                const auto& counted = outcome.ranks[static_cast<std::size_t>(rank)];
                CHECK(counted.memory == rehearsal.memory);
                CHECK(counted.pools.workspace == rehearsal.pools.workspace);
                CHECK(rehearsal.optimizer_worst_flops >= rehearsal.optimizer_flops);
                CHECK(rehearsal.optimizer_flops > 0);
            }
        }
    });
}

TEST_CASE("a skipped step leaves the state of every optimizer untouched") {
    for_optimizers([](const OptimizerCase& optimizer) {
        TrainingCase c = small_case(test::uneven_gpt2(), optimizer);
        c.steps = 5;
        TrainingCase without = c;
        without.left_out_step = 3;  // the same run without that step
        const TrainingOutcome reference = run_training(without);
        c.poisoned_step = 3;
        for (const int ranks : {1, 3}) {
            c.ranks = ranks;
            c.strategy = Strategy::matrix_fsdp;
            const TrainingOutcome outcome = run_training(c);
            CHECK(outcome.skipped == std::vector<bool>{false, false, true, false, false});
            require_same_weights(outcome, reference);
        }
    });
}

TEST_CASE("failed refreshes are counted in the next agreement, and too many in a row end the run on every rank") {
    for (const MatrixOptimizerName name : {MatrixOptimizerName::shampoo, MatrixOptimizerName::soap}) {
        TrainingCase c;
        c.model = test::uneven_gpt2();
        c.steps = 5;
        c.micro_batches = 3;
        c.device.solver_fault = device::SolverFault::all;
        c.optimizer = [name](MatrixOptimizerConfig& config) {
            config.name = name;
            config.max_refresh_failures = 10;
            config.shampoo.precondition_frequency = config.soap.precondition_frequency = 1;
        };
        for (const int ranks : {1, 3}) {
            c.ranks = ranks;
            c.strategy = Strategy::matrix_fsdp;
            const TrainingOutcome outcome = run_training(c);
            REQUIRE(outcome.facts.size() == 5);
            for (std::size_t step = 0; step < 5; ++step) {
                const runtime::RefreshFailures& failures = outcome.facts[step].refresh_failures;
                CHECK(failures.in_a_row == static_cast<std::int64_t>(step));  // of the steps before
                CHECK(failures.matrix == (step == 0 ? -1 : 0));
            }
            for (const std::vector<float>& weights : outcome.weights) {
                CHECK(std::all_of(weights.begin(), weights.end(), [](float value) { return std::isfinite(value); }));
            }
            TrainingCase strict = c;
            strict.optimizer = [&c](MatrixOptimizerConfig& config) {
                c.optimizer(config);
                config.max_refresh_failures = 2;
            };
            try {
                (void)run_training(strict);
                FAIL("three failures in a row were let pass");
            } catch (const Error& error) {
                CHECK(error.code() == ExitCode::numerical);
                const std::string text = error.what();
                CHECK(text.find("transformer.h.0.attn.c_attn.weight[q]") != std::string::npos);
                CHECK(text.find("3 refreshes in a row failed") != std::string::npos);
            }
        }
    }
}

TEST_CASE("a decomposition that single precision cannot do is done in double") {
    if (mfsdp::test::without_lapack()) return;
    TrainingCase c;
    c.model = test::uneven_llama();
    c.steps = 4;
    c.device.solver_fault = device::SolverFault::single_precision;
    c.optimizer = [](MatrixOptimizerConfig& config) {
        config.name = MatrixOptimizerName::shampoo;
        config.shampoo.precondition_frequency = 1;
    };
    const TrainingOutcome in_double = run_training(c);
    c.device.solver_fault = device::SolverFault::none;
    const TrainingOutcome in_single = run_training(c);
    CHECK(in_double.facts.back().refresh_failures.in_a_row == 0);
    CHECK(in_double.losses.back() == Approx(in_single.losses.back()).epsilon(1e-3));
    CHECK(in_double.weights != in_single.weights);
}

TEST_CASE("staggered refreshes are the same in every step on any ranks, and no step has all of them") {
    for (const MatrixOptimizerName name : {MatrixOptimizerName::shampoo, MatrixOptimizerName::soap}) {
        TrainingCase c;
        c.model = test::uneven_gpt2();
        c.strategy = Strategy::matrix_fsdp;
        c.optimizer = [name](MatrixOptimizerConfig& config) {
            config.name = name;
            config.shampoo.precondition_frequency = config.soap.precondition_frequency = 4;
            config.shampoo.stagger_refresh = config.soap.stagger_refresh = true;
        };
        const auto decompositions = [&c](int ranks, std::int64_t step) {
            c.ranks = ranks;
            const runtime::RunPlan run = test::training_plan(c);
            optim::StepCost total;
            for (int rank = 0; rank < ranks; ++rank) total += runtime::optimizer_cost(run, rank, step);
            return total.eigen_flops + total.orthogonal_flops;
        };
        std::int64_t all = 0;
        for (std::int64_t step = 40; step < 44; ++step) all += decompositions(1, step);
        REQUIRE(all > 0);
        for (std::int64_t step = 40; step < 48; ++step) {
            const std::int64_t alone = decompositions(1, step);
            CHECK(alone > 0);
            CHECK(2 * alone < all);
            CHECK(alone == decompositions(1, step + 4));
            for (const int ranks : {2, 3, 8}) CHECK(decompositions(ranks, step) == alone);
        }
    }
}

TEST_CASE("matrices have numbers in model order, blocks of a fused one each their own") {
    const std::vector<optim::Role> roles{optim::Role::rows, optim::Role::matrix, optim::Role::tail, optim::Role::matrix,
                                         optim::Role::matrix};
    const std::vector<std::vector<model::RowBlock>> blocks{{}, {{"q", 0, 2}, {"k", 2, 2}, {"v", 4, 2}}, {}, {}, {}};
    CHECK(runtime::matrix_numbers(roles, blocks) == std::vector<std::int64_t>{0, 0, 3, 3, 4});
    model::ModelSpec spec;
    for (const char* name : {"a", "b", "c", "d", "e"}) spec.parameters.emplace_back().name = name;
    CHECK(runtime::matrix_name(spec, roles, blocks, 1) == "b[k]");
    CHECK(runtime::matrix_name(spec, roles, blocks, 3) == "d");
    CHECK(runtime::matrix_name(spec, roles, blocks, 4) == "e");
    CHECK_THROWS_AS(runtime::matrix_name(spec, roles, blocks, 5), InternalError);
}
