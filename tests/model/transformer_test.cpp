#include "mfsdp/model/transformer.h"

#include "mfsdp/device/cpu_device.h"

#include "support/catch.h"
#include "support/model_cases.h"
#include "support/reference_transformer.h"
#include "support/single_rank.h"

#include <algorithm>
#include <cmath>

using namespace mfsdp;
using test::ModelCase;
using test::SingleRank;
using test::Tokens;

namespace {

double relative_distance(const std::vector<float>& actual, const std::vector<double>& expected) {
    REQUIRE(actual.size() == expected.size());
    REQUIRE(!expected.empty());
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
        norm += expected[i] * expected[i];
    }
    REQUIRE(norm > 0.0);
    return std::sqrt(difference / norm);
}

/// Elements whose derivative is checked: all of a small parameter, else evenly spread ones and the largest, for most
/// rows of an embedding have gradient zero.
std::vector<std::size_t> sample(const std::vector<float>& gradient, std::size_t most) {
    const auto smaller = [](float a, float b) { return std::abs(a) < std::abs(b); };
    const auto largest = std::max_element(gradient.begin(), gradient.end(), smaller) - gradient.begin();
    std::vector<std::size_t> elements{static_cast<std::size_t>(largest)};
    const std::size_t stride = std::max<std::size_t>(1, gradient.size() / most);
    for (std::size_t i = 0; i < gradient.size(); i += stride) elements.push_back(i);
    return elements;
}

/// Loss, logits and gradients of the model against the double-precision reference and its central differences.
void compare_with_reference(const ModelCase& description, std::size_t most_elements) {
    const model::ModelSpec spec = model::describe_model(description.config);
    const auto weights = test::random_weights(spec);
    const Tokens tokens = test::random_tokens(description);
    const std::int64_t length = description.options.sequence_length;
    const auto device = device::make_cpu_device({});
    SingleRank rank(*device, spec, description.options);
    test::ReferenceTransformer reference(spec);
    for (std::int64_t i = 0; i < rank.parameters(); ++i) {
        const auto& values = weights[static_cast<std::size_t>(i)];
        rank.load(i, values);
        reference.parameter(i).assign(values.begin(), values.end());
    }

    REQUIRE(relative_distance(rank.logits(tokens.inputs), reference.logits(tokens.inputs, length)) < 3e-6);
    const test::MicroBatchLoss loss = rank.run(tokens.inputs, tokens.targets);
    const double expected_loss = reference.loss_sum(tokens.inputs, tokens.targets, length);
    REQUIRE(std::abs(loss.loss_sum - expected_loss) < 1e-6 * expected_loss);
    REQUIRE(rank.activations().in_use() == 0);

    constexpr double kStep = 1e-4;  // error of central differences: about step^2 = 1e-8
    for (std::int64_t i = 0; i < rank.parameters(); ++i) {
        INFO(description.name << ": " << spec.parameters[static_cast<std::size_t>(i)].name);
        const std::vector<float> gradient = rank.read_gradient(i);
        std::vector<double> expected;
        std::vector<float> actual;
        for (const std::size_t element : sample(gradient, most_elements)) {
            double& value = reference.parameter(i)[element];
            const double original = value;
            value = original + kStep;
            const double above = reference.loss_sum(tokens.inputs, tokens.targets, length);
            value = original - kStep;
            const double below = reference.loss_sum(tokens.inputs, tokens.targets, length);
            value = original;
            expected.push_back((above - below) / (2.0 * kStep));
            actual.push_back(gradient[element]);
        }
        REQUIRE(relative_distance(actual, expected) < 1e-5);
    }
}

struct Outcome {
    double loss_sum = 0.0;
    std::int64_t targets = 0;
    std::vector<std::vector<float>> gradients;
    std::int64_t high_water = 0;
    bool operator==(const Outcome&) const = default;
};

Outcome run_twice(const ModelCase& description, const device::CpuDeviceOptions& options) {
    const model::ModelSpec spec = model::describe_model(description.config);
    const auto weights = test::random_weights(spec);
    const Tokens tokens = test::random_tokens(description);
    const auto device = device::make_cpu_device(options);
    SingleRank rank(*device, spec, description.options);
    for (std::int64_t i = 0; i < rank.parameters(); ++i) rank.load(i, weights[static_cast<std::size_t>(i)]);
    rank.run(tokens.inputs, tokens.targets);  // so that the second run finds used memory
    Outcome outcome;
    const test::MicroBatchLoss loss = rank.run(tokens.inputs, tokens.targets);
    outcome.loss_sum = loss.loss_sum;
    outcome.targets = loss.targets;
    for (std::int64_t i = 0; i < rank.parameters(); ++i) outcome.gradients.push_back(rank.read_gradient(i));
    REQUIRE(rank.activations().in_use() == 0);
    outcome.high_water = rank.activations().high_water();
    return outcome;
}

/// More tokens than a chunk of the head and more rows than a panel of the vocabulary.
ModelCase large_head_case(model::ModelFamily family) {
    ModelCase result = family == model::ModelFamily::gpt2
                           ? test::gpt2_case("gpt2, two chunks and panels", true)
                           : test::llama_case("llama, two chunks and panels", 2, false, false);
    result.config.vocab_size = 4096 + 71;
    result.config.num_hidden_layers = 1;
    result.config.max_position_embeddings = 151;
    result.options = {.batch_size = 2, .sequence_length = 149};
    return result;
}

}  // namespace

TEST_CASE("gradients of a whole model equal central differences of a double-precision reference") {
    for (const ModelCase& description : test::model_cases()) compare_with_reference(description, 40);
}

TEST_CASE("one token of one sequence trains") {
    for (ModelCase description : test::model_cases()) {
        description.options = {.batch_size = 1, .sequence_length = 1};
        const model::ModelSpec spec = model::describe_model(description.config);
        const auto device = device::make_cpu_device({});
        SingleRank rank(*device, spec, description.options);
        rank.initialise(7);
        const test::MicroBatchLoss loss = rank.run({3}, {4});
        CHECK(loss.targets == 1);
        // Small random weights: near the loss of a uniform guess.
        CHECK(std::abs(loss.loss_sum - std::log(23.0)) < 0.2);
    }
}

TEST_CASE("a head of several token chunks and vocabulary panels equals the reference") {
    compare_with_reference(large_head_case(model::ModelFamily::gpt2), 3);
    compare_with_reference(large_head_case(model::ModelFamily::llama), 3);
}

TEST_CASE("threads, asynchronous streams and guarded addresses change no bit of loss and gradients") {
    std::vector<ModelCase> cases = test::model_cases();
    cases.push_back(large_head_case(model::ModelFamily::gpt2));
    for (const ModelCase& description : cases) {
        INFO(description.name);
        const Outcome expected = run_twice(description, {.threads = 1});
        REQUIRE(!expected.gradients.empty());
        REQUIRE(expected.targets > 0);
        CHECK(run_twice(description, {.threads = 2}) == expected);
        CHECK(run_twice(description, {.threads = 1, .asynchronous_streams = true}) == expected);
        CHECK(run_twice(description, {.threads = 2, .asynchronous_streams = true, .delay_seed = 5}) == expected);
        CHECK(run_twice(description, {.threads = 1, .guard_addresses = true}) == expected);
    }
}

TEST_CASE("activations in use at the high-water mark are those of the rehearsal on the counting device") {
    for (const ModelCase& description : test::model_cases()) {
        const Outcome outcome = run_twice(description, {});
        CHECK(outcome.high_water ==
              SingleRank::activation_bytes(model::describe_model(description.config), description.options));
        CHECK(outcome.high_water > 0);
    }
}

TEST_CASE("evaluation gives the bits of the training loss and leaves no activation") {
    std::vector<ModelCase> cases = test::model_cases();
    cases.push_back(large_head_case(model::ModelFamily::llama));
    for (const ModelCase& description : cases) {
        const model::ModelSpec spec = model::describe_model(description.config);
        const Tokens tokens = test::random_tokens(description);
        const auto device = device::make_cpu_device({});
        SingleRank rank(*device, spec, description.options);
        rank.initialise(1);
        const test::MicroBatchLoss evaluated = rank.evaluate(tokens.inputs, tokens.targets);
        CHECK(rank.activations().in_use() == 0);
        const test::MicroBatchLoss trained = rank.run(tokens.inputs, tokens.targets);
        CHECK(evaluated.loss_sum == trained.loss_sum);
        CHECK(evaluated.targets == trained.targets);
        CHECK(trained.loss_sum > 0.0);
    }
}

TEST_CASE("fewer sequences than the options allow give the loss of those sequences") {
    const ModelCase description = test::gpt2_case("gpt2", true);
    const model::ModelSpec spec = model::describe_model(description.config);
    const Tokens tokens = test::random_tokens(description);
    const auto device = device::make_cpu_device({});
    SingleRank rank(*device, spec, description.options);
    rank.initialise(1);
    const auto part = [&](const std::vector<std::int32_t>& all, std::ptrdiff_t begin, std::ptrdiff_t end) {
        return std::vector<std::int32_t>(all.begin() + begin * 7, all.begin() + end * 7);
    };
    const auto whole = rank.run(tokens.inputs, tokens.targets);
    const auto first = rank.run(part(tokens.inputs, 0, 2), part(tokens.targets, 0, 2));
    const auto last = rank.run(part(tokens.inputs, 2, 3), part(tokens.targets, 2, 3));
    CHECK(first.targets + last.targets == whole.targets);
    CHECK(first.loss_sum + last.loss_sum == Approx(whole.loss_sum).epsilon(1e-6));
    CHECK(rank.activations().in_use() == 0);
}

TEST_CASE("units out of order and tensors of another shape are refused") {
    const ModelCase description = test::llama_case("llama", 2, false, false);
    const model::ModelSpec spec = model::describe_model(description.config);
    const auto device = device::make_counting_device({});
    const auto stream = device->make_stream();
    device::MemoryLedger ledger;
    device::BufferPool pool(*device, ledger, device::MemoryCategory::activations, -1);
    model::Transformer transformer(spec, description.options, ledger, pool, *stream);
    const device::Buffer memory(*device, ledger, device::MemoryCategory::weights, 1 << 16);
    const model::MicroBatch micro_batch{.inputs = memory.view(device::DType::int32, {2, 9}),
                                        .targets = memory.view(device::DType::int32, {2, 9}),
                                        .loss_sum = memory.view(device::DType::float64, {1}),
                                        .target_count = memory.view(device::DType::int64, {1})};
    const std::vector<device::Tensor> embedding{memory.view(device::DType::float32, {23, 13})};
    const std::vector<device::Tensor> wrong{memory.view(device::DType::float32, {13, 23})};

    CHECK_THROWS_AS(transformer.forward(1, embedding, micro_batch), InternalError);
    CHECK_THROWS_AS(transformer.forward(0, wrong, micro_batch), InternalError);
    CHECK_THROWS_AS(transformer.forward(0, {}, micro_batch), InternalError);
    model::MicroBatch large = micro_batch;
    large.inputs = memory.view(device::DType::int32, {3, 9});
    CHECK_THROWS_AS(transformer.forward(0, embedding, large), InternalError);
    transformer.forward(0, embedding, micro_batch);
    CHECK_THROWS_AS(transformer.forward(0, embedding, micro_batch), InternalError);
    CHECK_THROWS_AS(transformer.backward(0, embedding, embedding, micro_batch), InternalError);

    model::TransformerOptions long_sequence = description.options;
    long_sequence.sequence_length = 17;
    CHECK_THROWS_AS(model::Transformer(spec, long_sequence, ledger, pool, *stream), InternalError);
}
