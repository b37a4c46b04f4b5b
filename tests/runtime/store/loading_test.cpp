#include "support/catch.h"
#include "support/training_run.h"

#include <atomic>
#include <cmath>
#include <mutex>

using namespace mfsdp;
using runtime::NumberType;
using runtime::Strategy;
using test::TrainingCase;

namespace {

/// A tied table of three panels.
model::ModelConfig large_vocabulary() {
    model::ModelConfig model = test::uneven_gpt2();
    model.vocab_size = 9001;
    model.num_hidden_layers = 1;
    return model;
}

TrainingCase small_case(const model::ModelConfig& model) {
    TrainingCase c;
    c.model = model;
    c.micro_batches = 3;
    return c;
}

}  // namespace

TEST_CASE("loaded weights are read once, only where they are kept, and rest in every type and cut") {
    const model::ModelConfig model = large_vocabulary();
    for (const NumberType type : {NumberType::float32, NumberType::bfloat16}) {
        for (const Strategy strategy : {Strategy::ddp, Strategy::zero1_owner, Strategy::matrix_fsdp}) {
            for (const int ranks : {1, 3}) {
                TrainingCase c = small_case(model);
                c.param_dtype = type;
                c.strategy = strategy;
                c.ranks = ranks;
                const runtime::RunPlan run = test::training_plan(c);
                std::vector<std::int64_t> reads(run.spec.parameters.size(), 0);
                std::vector<std::vector<float>> collected;
                std::mutex mutex;
                std::atomic<int> wrong{0};  // Catch counts on one thread only
                comm::ThreadCluster cluster(ranks);
                cluster.run([&](comm::Communicator& communicator) {
                    test::RankRun rank_run(run, communicator);
                    runtime::Engine& engine = rank_run.engine;
                    engine.weights().load([&](std::int64_t parameter, std::int64_t row_begin, std::int64_t row_count,
                                              std::span<float> values) {
                        const std::int64_t columns = run.spec.parameters[static_cast<std::size_t>(parameter)].columns();
                        wrong += static_cast<std::int64_t>(values.size()) == row_count * columns ? 0 : 1;
                        for (std::size_t i = 0; i < values.size(); ++i) {
                            values[i] =
                                1.0F + static_cast<float>(row_begin * columns + static_cast<std::int64_t>(i)) / 7;
                        }
                        const std::lock_guard lock(mutex);
                        reads[static_cast<std::size_t>(parameter)] += row_count;
                    });
                    for (const runtime::OwnedRows& rows : engine.weights().owned()) {
                        // Masters hold the value itself, weights at rest its rounding.
                        const auto* const master = reinterpret_cast<const float*>(rows.weight.data);
                        const std::int64_t columns =
                            run.spec.parameters[static_cast<std::size_t>(rows.parameter)].columns();
                        wrong += master[0] == 1.0F + static_cast<float>(rows.row_begin * columns) / 7 ? 0 : 1;
                    }
                    std::vector<std::vector<float>> weights = rank_run.collect();
                    if (communicator.rank() == 0) collected = std::move(weights);
                });
                CHECK(wrong == 0);
                REQUIRE(collected.size() == run.spec.parameters.size());
                const std::int64_t copies = strategy == Strategy::matrix_fsdp ? 1 : ranks;
                for (std::size_t p = 0; p < run.spec.parameters.size(); ++p) {
                    INFO(run.spec.parameters[p].name);
                    CHECK(reads[p] == copies * run.spec.parameters[p].rows());
                    REQUIRE(!collected[p].empty());
                    std::int64_t differing = 0;
                    for (std::size_t i = 0; i < collected[p].size(); ++i) {
                        const float exact = 1.0F + static_cast<float>(i) / 7;
                        const float tolerance = type == NumberType::float32 ? 0.0F : exact / 256.0F;
                        differing += std::fabs(collected[p][i] - exact) <= tolerance ? 0 : 1;
                    }
                    CHECK(differing == 0);
                }
            }
        }
    }
}
