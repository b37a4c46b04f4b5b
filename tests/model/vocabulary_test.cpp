#include "mfsdp/model/transformer.h"

#include "support/catch.h"
#include "support/model_cases.h"
#include "support/model_outcome.h"

#include <cmath>
#include <limits>

using namespace mfsdp;
using test::ModelCase;
using test::Outcome;
using test::SingleRank;

namespace {

ModelCase with_vocabulary(ModelCase description, std::int64_t tokens, std::int64_t padded) {
    description.config.vocab_size = tokens;
    description.config.padded_vocab_size = padded;
    description.config.num_hidden_layers = 1;
    return description;
}

/// Runs a case whose padding rows hold NaN: if anything read them, it would show.
Outcome run_with_poisoned_padding(const ModelCase& description, const std::vector<std::vector<float>>& weights) {
    const model::ModelSpec spec = model::describe_model(description.config);
    const auto device = device::make_cpu_device({});
    SingleRank rank(*device, spec, description.options);
    for (std::int64_t i = 0; i < rank.parameters(); ++i) {
        std::vector<float> values = weights.at(static_cast<std::size_t>(i));
        values.resize(static_cast<std::size_t>(spec.parameters[static_cast<std::size_t>(i)].count()),
                      std::numeric_limits<float>::quiet_NaN());
        rank.load(i, values);
    }
    return test::outcome_of(rank, test::random_tokens(description));
}

double distance(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& c) {
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double error = static_cast<double>(a[i]) - (static_cast<double>(b[i]) + c[i]);
        difference += error * error;
        norm += static_cast<double>(a[i]) * a[i];
    }
    return std::sqrt(difference) / std::sqrt(norm);
}

}  // namespace

TEST_CASE("padding rows never enter the loss, change no gradient and have gradient zero") {
    struct Sizes {
        std::int64_t tokens, padded;
    };
    // Padding in the only panel; across two panels; a last panel of padding alone; beside a panel that is full.
    for (const Sizes sizes : {Sizes{23, 32}, Sizes{4090, 4224}, Sizes{4096, 4608}, Sizes{4167, 4224}}) {
        for (const bool tied : {true, false}) {
            for (ModelCase plain : {test::gpt2_case("gpt2", tied), test::qwen3_case("qwen3", tied)}) {
                plain.options.compute_type = sizes.padded % 512 == 0 ? device::DType::bfloat16 : device::DType::float32;
                INFO(plain.name << (tied ? " tied, " : ", ") << sizes.tokens << " of " << sizes.padded);
                const ModelCase unpadded = with_vocabulary(plain, sizes.tokens, 0);
                const ModelCase padded = with_vocabulary(plain, sizes.tokens, sizes.padded);
                const model::ModelSpec spec = model::describe_model(padded.config);
                const auto weights = test::random_weights(model::describe_model(unpadded.config));
                const Outcome expected = test::run_case(unpadded);
                const Outcome outcome = run_with_poisoned_padding(padded, weights);
                CHECK(outcome.loss == expected.loss);
                int tables = 0;
                for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
                    std::vector<float> gradient = expected.gradients[i];
                    const model::ParameterSpec& parameter = spec.parameters[i];
                    gradient.resize(static_cast<std::size_t>(parameter.count()), 0.0F);
                    tables += parameter.padding_rows > 0 ? 1 : 0;
                    INFO(parameter.name);
                    CHECK(outcome.gradients[i] == gradient);
                }
                CHECK(tables == (tied ? 1 : 2));
            }
        }
    }
}

TEST_CASE("logits that are kept and logits that are computed again give the same bits") {
    for (const device::DType type : test::compute_types()) {
        for (const bool tied : {true, false}) {
            ModelCase description = with_vocabulary(test::gpt2_case("", tied), 4167, 4224);
            description.options.compute_type = type;
            const Outcome kept = test::run_case(description);
            const std::int64_t with =
                SingleRank::activation_bytes(model::describe_model(description.config), description.options);
            description.options.kept_logit_bytes = 0;
            const std::int64_t without =
                SingleRank::activation_bytes(model::describe_model(description.config), description.options);
            REQUIRE(kept.gradients.size() > 10);
            CHECK(test::run_case(description) == kept);
            CHECK(without < with);
        }
    }
}

TEST_CASE("several chunks of tokens give the sum of the gradients of their parts") {
    ModelCase description = with_vocabulary(test::llama_case("", 2, false, false), 4167, 0);
    description.config.max_position_embeddings = 600;
    description.options = {.batch_size = 2, .sequence_length = 600};  // chunks of 1024 and 176 tokens
    for (const std::int64_t kept : {description.options.kept_logit_bytes, std::int64_t{0}}) {
        description.options.kept_logit_bytes = kept;
        const model::ModelSpec spec = model::describe_model(description.config);
        const auto device = device::make_cpu_device({.threads = 2});
        SingleRank rank(*device, spec, description.options);
        test::load(rank, test::random_weights(spec));
        const test::Tokens tokens = test::random_tokens(description);
        const auto half = [](const std::vector<std::int32_t>& all, bool second) {
            return std::vector<std::int32_t>(all.begin() + (second ? 600 : 0), all.end() - (second ? 0 : 600));
        };
        const Outcome whole = test::outcome_of(rank, tokens);
        const Outcome first = test::outcome_of(rank, {half(tokens.inputs, false), half(tokens.targets, false)});
        const Outcome second = test::outcome_of(rank, {half(tokens.inputs, true), half(tokens.targets, true)});
        CHECK(first.loss.targets + second.loss.targets == whole.loss.targets);
        CHECK(first.loss.loss_sum + second.loss.loss_sum == Approx(whole.loss.loss_sum).epsilon(1e-6));
        for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
            INFO(spec.parameters[i].name);
            CHECK(distance(whole.gradients[i], first.gradients[i], second.gradients[i]) < 2e-6);
        }
    }
}
