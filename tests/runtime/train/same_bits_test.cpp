#include "device/cpu/panels.h"
#include "support/catch.h"
#include "support/training_run.h"

#include <string>

// The promise of the project: the same global batch cut into the same micro-batches gives the same bits on any number
// of ranks, under every strategy, with every builder of schedules. The second source is ddp on one rank.

namespace {

using mfsdp::runtime::GatherAlgorithm;
using mfsdp::runtime::Strategy;
using mfsdp::test::run_training;
using mfsdp::test::TrainingCase;
using mfsdp::test::TrainingOutcome;

void require_same_bits(const TrainingOutcome& outcome, const TrainingOutcome& reference) {
    REQUIRE(reference.losses.size() >= 3);
    REQUIRE(reference.weights.size() > 10);
    REQUIRE(outcome.losses == reference.losses);
    REQUIRE(outcome.norms == reference.norms);
    REQUIRE(outcome.clip_scales == reference.clip_scales);
    REQUIRE(outcome.weights.size() == reference.weights.size());
    for (std::size_t i = 0; i < reference.weights.size(); ++i) {
        INFO("parameter " << i);
        REQUIRE(!reference.weights[i].empty());
        REQUIRE(outcome.weights[i] == reference.weights[i]);
    }
}

std::string describe(const TrainingCase& c) {
    return "ranks " + std::to_string(c.ranks) + ", strategy " + std::to_string(static_cast<int>(c.strategy)) +
           ", gather " + std::to_string(static_cast<int>(c.gather)) + ", micro-batches " +
           std::to_string(c.micro_batches) + ", threads " + std::to_string(c.device.threads);
}

void compare_everything(const mfsdp::model::ModelConfig& model, std::int64_t micro_batches) {
    TrainingCase base;
    base.model = model;
    base.micro_batches = micro_batches;
    const TrainingOutcome reference = run_training(base);
    // The comparison is worth something only if training moves and clipping acts.
    REQUIRE(reference.losses.back() < reference.losses.front());
    REQUIRE(reference.clip_scales.front() < 1.0);
    for (const int threads : {1, 2}) {
        for (const int ranks : {1, 2, 3, 4, 5, 8}) {
            for (const Strategy strategy : {Strategy::ddp, Strategy::zero1_owner, Strategy::matrix_fsdp}) {
                for (const GatherAlgorithm gather : {GatherAlgorithm::direct, GatherAlgorithm::ring}) {
                    if (strategy == Strategy::ddp && gather == GatherAlgorithm::ring) continue;  // ddp gathers nothing
                    TrainingCase c = base;
                    c.ranks = ranks;
                    c.strategy = strategy;
                    c.gather = gather;
                    c.device.threads = threads;
                    INFO(describe(c));
                    require_same_bits(run_training(c), reference);
                }
            }
        }
    }
}

}  // namespace

TEST_CASE("same bits on any ranks under every strategy: gpt2 with 7 micro-batches") {
    compare_everything(mfsdp::test::uneven_gpt2(), 7);
}
TEST_CASE("same bits on any ranks under every strategy: llama with 7 micro-batches") {
    compare_everything(mfsdp::test::uneven_llama(), 7);
}
TEST_CASE("same bits on any ranks under every strategy: gpt2 with 120 micro-batches", "[slow]") {
    compare_everything(mfsdp::test::uneven_gpt2(), 120);
}
TEST_CASE("same bits on any ranks under every strategy: llama with 120 micro-batches", "[slow]") {
    compare_everything(mfsdp::test::uneven_llama(), 120);
}

TEST_CASE("same bits with more ranks than a one-block model has matrices") {
    for (mfsdp::model::ModelConfig model : {mfsdp::test::uneven_gpt2(), mfsdp::test::uneven_llama()}) {
        model.num_hidden_layers = 1;
        TrainingCase c;
        c.model = model;
        c.micro_batches = 20;
        c.steps = 4;
        const TrainingOutcome reference = run_training(c);
        c.ranks = 17;
        for (const Strategy strategy : {Strategy::ddp, Strategy::zero1_owner, Strategy::matrix_fsdp}) {
            c.strategy = strategy;
            INFO(describe(c));
            require_same_bits(run_training(c), reference);
        }
    }
}

TEST_CASE("same bits with asynchronous streams, guarded addresses, random transfer order and any prefetching") {
    for (const mfsdp::model::ModelConfig& model : {mfsdp::test::uneven_gpt2(), mfsdp::test::uneven_llama()}) {
        TrainingCase base;
        base.model = model;
        base.micro_batches = 5;
        base.steps = 4;
        const TrainingOutcome reference = run_training(base);
        for (const Strategy strategy : {Strategy::ddp, Strategy::zero1_owner, Strategy::matrix_fsdp}) {
            for (const int ranks : {1, 3}) {
                TrainingCase c = base;
                c.strategy = strategy;
                c.ranks = ranks;
                SECTION("asynchronous streams " + describe(c) + std::to_string(static_cast<int>(model.family))) {
                    c.device.asynchronous_streams = true;
                    require_same_bits(run_training(c), reference);
                }
                SECTION("guarded addresses " + describe(c) + std::to_string(static_cast<int>(model.family))) {
                    c.device.guard_addresses = true;
                    require_same_bits(run_training(c), reference);
                }
                SECTION("random order " + describe(c) + std::to_string(static_cast<int>(model.family))) {
                    c.random_order = true;
                    require_same_bits(run_training(c), reference);
                    c.device.asynchronous_streams = true;
                    require_same_bits(run_training(c), reference);
                }
                SECTION("prefetching " + describe(c) + std::to_string(static_cast<int>(model.family))) {
                    for (const std::int64_t units : {0, 2, 9}) {
                        c.prefetch_units = units;
                        require_same_bits(run_training(c), reference);
                    }
                    c.reshard_after_forward = false;
                    require_same_bits(run_training(c), reference);
                }
            }
        }
    }
}

TEST_CASE("same bits under AdamW alone and without clipping") {
    TrainingCase c;
    c.model = mfsdp::test::uneven_llama();
    c.use_matrix_optimizer = false;
    c.clip_grad = 0.0;
    c.steps = 4;
    const TrainingOutcome reference = run_training(c);
    REQUIRE(reference.clip_scales.front() == 1.0);
    for (const Strategy strategy : {Strategy::zero1_owner, Strategy::matrix_fsdp}) {
        for (const int ranks : {2, 5}) {
            c.ranks = ranks;
            c.strategy = strategy;
            INFO(describe(c));
            require_same_bits(run_training(c), reference);
        }
    }
}

TEST_CASE("same bits with 1 2 3 4 and 8 threads where products have several panels") {
    for (mfsdp::model::ModelConfig model : {mfsdp::test::uneven_gpt2(), mfsdp::test::uneven_llama()}) {
        TrainingCase c;
        c.model = model;
        c.model.vocab_size = 611;
        c.model.hidden_size = c.model.num_attention_heads * 32;
        c.model.head_dim = 32;
        c.model.intermediate_size = 701;
        c.model.max_position_embeddings = 128;
        c.sequence_length = 101;
        c.micro_batches = 2;
        c.steps = 3;
        c.chunk_bytes = 1 << 20;
        const std::int64_t tokens = 2 * c.sequence_length;
        const auto panels = mfsdp::device::cpu::cut_into_panels(tokens, c.model.intermediate_size, c.model.hidden_size);
        REQUIRE(panels.row_panels(tokens) * panels.column_panels(c.model.intermediate_size) >= 8);
        const TrainingOutcome reference = run_training(c);
        for (const int threads : {2, 3, 4, 8}) {
            c.device.threads = threads;
            INFO(describe(c));
            require_same_bits(run_training(c), reference);
        }
    }
}
