#include "mfsdp/device/half.h"
#include "mfsdp/model/transformer.h"

#include "model/golden_case.h"
#include "support/catch.h"
#include "support/model_cases.h"
#include "support/model_outcome.h"

using namespace mfsdp;
using device::DType;
using test::ModelCase;
using test::Outcome;

namespace {

float rounded(float value) { return device::widened(device::rounded<device::BFloat16>(value)); }

ModelCase in_bfloat16(ModelCase description) {
    description.options.compute_type = DType::bfloat16;
    description.options.gradient_type = DType::bfloat16;
    return description;
}

}  // namespace

TEST_CASE("golden models: in bfloat16 loss and gradients lie within the tolerances of the type") {
    // A rounding is up to 2^-9 = 0.2 % of a value, and a gradient has passed some dozen of them. The largest errors
    // that were measured are 0.06 % of a loss (llama_tiny_gqa) and 3.5 % of a gradient (its first norm); these are
    // three times that.
    constexpr double kLossRelative = 2e-3;
    constexpr double kGradientRelative = 0.1;
    for (const test::GoldenCase& golden : test::golden_cases()) {
        INFO("golden model " << golden.name);
        const auto device = device::make_cpu_device({.threads = 2});
        test::SingleRank rank(*device, golden.spec,
                              {.batch_size = golden.rows,
                               .sequence_length = golden.length,
                               .compute_type = DType::bfloat16,
                               .gradient_type = DType::bfloat16});
        test::load(rank, golden.weights);
        const Outcome outcome = test::outcome_of(rank, golden.tokens);
        const double loss = std::abs(outcome.loss.mean() - golden.loss()) / golden.loss();
        CHECK(loss <= kLossRelative);
        CHECK(loss > 1e-6);  // it was rounded
        for (std::size_t i = 0; i < outcome.gradients.size(); ++i) {
            INFO(golden.spec.parameters[i].name);
            CHECK(golden.gradient_distance(i, outcome.gradients[i], outcome.loss.targets) <= kGradientRelative);
        }
    }
}

TEST_CASE("bfloat16 gradients are float32 gradients rounded once") {
    for (const DType compute : {DType::float32, DType::bfloat16}) {
        for (ModelCase description : test::model_cases()) {
            if (description.config.tie_word_embeddings) continue;  // the sum of two rounded gradients
            INFO(description.name << " in " << device::name(compute));
            description.options.compute_type = compute;
            const Outcome wide = test::run_case(description);
            description.options.gradient_type = DType::bfloat16;
            const Outcome narrow = test::run_case(description);
            CHECK(narrow.loss == wide.loss);
            REQUIRE(wide.gradients.size() > 10);
            for (std::size_t i = 0; i < wide.gradients.size(); ++i) {
                INFO("parameter " << i);
                std::vector<float> expected = wide.gradients[i];
                for (float& value : expected) value = rounded(value);
                CHECK(narrow.gradients[i] == expected);
            }
        }
    }
}

TEST_CASE("a gradient of several token chunks is rounded once too") {
    ModelCase description = test::llama_case("", 2, false, false);
    description.config.vocab_size = 150;
    description.config.num_hidden_layers = 1;
    description.config.max_position_embeddings = 600;
    description.options.batch_size = 2;
    description.options.sequence_length = 600;  // chunks of 1024 and 176 tokens
    const Outcome wide = test::run_case(description);
    description.options.gradient_type = DType::bfloat16;
    const Outcome narrow = test::run_case(description);
    std::vector<float> expected = wide.gradients.back();  // of the head
    for (float& value : expected) value = rounded(value);
    CHECK(narrow.gradients.back() == expected);
}

TEST_CASE("in bfloat16 threads, streams and addresses change no bit, and evaluation gives the training loss") {
    for (const ModelCase& plain : test::model_cases()) {
        INFO(plain.name);
        const ModelCase description = in_bfloat16(plain);
        const Outcome expected = test::run_case(description, {.threads = 1});
        REQUIRE(expected.loss.targets > 0);
        REQUIRE(expected.loss.loss_sum != test::run_case(plain).loss.loss_sum);
        CHECK(test::run_case(description, {.threads = 2}) == expected);
        CHECK(test::run_case(description, {.threads = 3, .asynchronous_streams = true, .delay_seed = 5}) == expected);
        CHECK(test::run_case(description, {.threads = 1, .guard_addresses = true}) == expected);

        const model::ModelSpec spec = model::describe_model(description.config);
        const test::Tokens tokens = test::random_tokens(description);
        const auto device = device::make_cpu_device({});
        test::SingleRank rank(*device, spec, description.options);
        test::load(rank, test::random_weights(spec));
        CHECK(rank.evaluate(tokens.inputs, tokens.targets) == expected.loss);
    }
}

TEST_CASE("bfloat16 activations take half the memory, but for statistics and the head's float32 sums") {
    ModelCase description = test::llama_case("", 2, false, false);
    description.config.num_hidden_layers = 12;
    const auto block_bytes = [&](DType compute) {
        description.options.compute_type = compute;
        std::int64_t bytes[2];
        for (const std::int64_t layers : {0, 1}) {
            description.config.num_hidden_layers = 12 + layers;
            bytes[layers] =
                test::SingleRank::activation_bytes(model::describe_model(description.config), description.options);
        }
        return bytes[1] - bytes[0];
    };
    const std::int64_t wide = block_bytes(DType::float32);
    const std::int64_t narrow = block_bytes(DType::bfloat16);
    CHECK(10 * narrow < 6 * wide);
    CHECK(narrow >= wide / 2);
}
