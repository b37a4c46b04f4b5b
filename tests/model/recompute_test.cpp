#include "mfsdp/model/transformer.h"

#include "support/catch.h"
#include "support/model_cases.h"
#include "support/model_outcome.h"

using namespace mfsdp;
using model::RecomputeMode;
using test::ModelCase;
using test::SingleRank;

TEST_CASE("every recompute mode in every k-th block gives the bits of none") {
    for (const device::DType type : test::compute_types()) {
        for (ModelCase description : test::model_cases()) {
            description.config.num_hidden_layers = 3;
            description.options.compute_type = type;
            const test::Outcome expected = test::run_case(description);
            REQUIRE(expected.gradients.size() > 10);
            REQUIRE(expected.loss.loss_sum > 0.0);
            for (const RecomputeMode mode : {RecomputeMode::attention, RecomputeMode::block}) {
                for (const std::int64_t every : {1, 2, 3, 5}) {
                    INFO(description.name << " mode " << static_cast<int>(mode) << " every " << every);
                    description.options.recompute = mode;
                    description.options.recompute_every = every;
                    CHECK(test::run_case(description) == expected);
                }
            }
        }
    }
}

TEST_CASE("recomputing saves activations: block below attention below none, and less with every larger k") {
    for (ModelCase description : {test::gpt2_case("gpt2", true), test::llama_case("llama", 2, false, false),
                                  test::qwen3_case("qwen3", false)}) {
        INFO(description.name);
        description.config.num_hidden_layers = 12;
        const model::ModelSpec spec = model::describe_model(description.config);
        const auto peak = [&](RecomputeMode mode, std::int64_t every) {
            description.options.recompute = mode;
            description.options.recompute_every = every;
            return SingleRank::activation_bytes(spec, description.options);
        };
        const std::int64_t none = peak(RecomputeMode::none, 1);
        const std::int64_t attention = peak(RecomputeMode::attention, 1);
        const std::int64_t block = peak(RecomputeMode::block, 1);
        CHECK(block < attention);
        CHECK(attention < none);
        CHECK(block < peak(RecomputeMode::block, 2));
        CHECK(peak(RecomputeMode::block, 2) < peak(RecomputeMode::block, 3));
        CHECK(peak(RecomputeMode::block, 12) < none);
        // A block that is recomputed keeps its input alone: one more block, one more input.
        const std::int64_t layers = description.config.num_hidden_layers;
        description.config.num_hidden_layers = layers + 1;
        const std::int64_t input = device::align_up(
            4 * description.options.batch_size * description.options.sequence_length * description.config.hidden_size);
        description.options.recompute_every = 1;
        CHECK(SingleRank::activation_bytes(model::describe_model(description.config), description.options) ==
              block + input);
    }
}
