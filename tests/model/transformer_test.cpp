#include "mfsdp/model/transformer.h"

#include "mfsdp/device/cpu_device.h"

#include "support/catch.h"
#include "support/model_cases.h"
#include "support/model_outcome.h"
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
    const auto expected_loss = reference.loss(tokens.inputs, tokens.targets, length);
    REQUIRE(std::abs(loss.loss_sum - expected_loss.sum) < 1e-6 * expected_loss.sum);
    REQUIRE(expected_loss.log_z_squares > 0.0);
    REQUIRE(std::abs(loss.log_z_squares - expected_loss.log_z_squares) < 1e-6 * expected_loss.log_z_squares);
    REQUIRE(rank.activations().in_use() == 0);
    const auto objective = [&] {
        const auto sums = reference.loss(tokens.inputs, tokens.targets, length);
        return sums.sum + description.options.z_loss * sums.log_z_squares;
    };

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
            const double above = objective();
            value = original - kStep;
            const double below = objective();
            value = original;
            expected.push_back((above - below) / (2.0 * kStep));
            actual.push_back(gradient[element]);
        }
        REQUIRE(relative_distance(actual, expected) < 1e-5);
    }
}

struct Repeated {
    test::Outcome outcome;
    std::int64_t high_water = 0;
    bool operator==(const Repeated&) const = default;
};

Repeated run_twice(const ModelCase& description, const device::CpuDeviceOptions& options) {
    const model::ModelSpec spec = model::describe_model(description.config);
    const Tokens tokens = test::random_tokens(description);
    const auto device = device::make_cpu_device(options);
    SingleRank rank(*device, spec, description.options);
    test::load(rank, test::random_weights(spec));
    rank.run(tokens.inputs, tokens.targets);  // so that the second run finds used memory
    Repeated result;
    result.outcome = test::outcome_of(rank, tokens);
    REQUIRE(rank.activations().in_use() == 0);
    result.high_water = rank.activations().high_water();
    return result;
}

/// More rows than a panel of the vocabulary.
ModelCase large_head_case(model::ModelFamily family) {
    ModelCase result = family == model::ModelFamily::gpt2 ? test::gpt2_case("gpt2, two panels", true)
                                                          : test::llama_case("llama, two panels", 2, false, false);
    result.config.vocab_size = 4096 + 71;
    result.config.num_hidden_layers = 1;
    return result;
}

}  // namespace

TEST_CASE("gradients of a whole model equal central differences of a double-precision reference") {
    for (const ModelCase& description : test::model_cases()) compare_with_reference(description, 40);
}

TEST_CASE("z-loss adds the gradient of the squared log Z and leaves the loss alone") {
    for (ModelCase description :
         {test::gpt2_case("gpt2 with z-loss", true), test::qwen3_case("qwen3 with z-loss", false)}) {
        const double without = test::run_case(description).loss.loss_sum;
        description.options.z_loss = 0.05;
        CHECK(test::run_case(description).loss.loss_sum == without);
        compare_with_reference(description, 40);
    }
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

TEST_CASE("a head of several vocabulary panels equals the reference") {
    compare_with_reference(large_head_case(model::ModelFamily::gpt2), 3);
    compare_with_reference(large_head_case(model::ModelFamily::llama), 3);
}

TEST_CASE("threads, asynchronous streams and guarded addresses change no bit of loss and gradients") {
    std::vector<ModelCase> cases = test::model_cases();
    cases.push_back(large_head_case(model::ModelFamily::gpt2));
    for (const ModelCase& description : cases) {
        INFO(description.name);
        const Repeated expected = run_twice(description, {.threads = 1});
        REQUIRE(!expected.outcome.gradients.empty());
        REQUIRE(expected.outcome.loss.targets > 0);
        CHECK(run_twice(description, {.threads = 2}) == expected);
        CHECK(run_twice(description, {.threads = 1, .asynchronous_streams = true}) == expected);
        CHECK(run_twice(description, {.threads = 2, .asynchronous_streams = true, .delay_seed = 5}) == expected);
        CHECK(run_twice(description, {.threads = 1, .guard_addresses = true}) == expected);
    }
}

TEST_CASE("activations in use at the high-water mark are those of the rehearsal on the counting device") {
    for (const ModelCase& description : test::model_cases()) {
        const Repeated outcome = run_twice(description, {});
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
        CHECK(evaluated == trained);
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

TEST_CASE("evaluation keeps nothing of a block for later") {
    ModelCase description = test::llama_case("llama", 2, false, false);
    const auto peak = [&](std::int64_t layers, bool train) {
        description.config.num_hidden_layers = layers;
        const model::ModelSpec spec = model::describe_model(description.config);
        const auto device = device::make_counting_device({});
        SingleRank rank(*device, spec, description.options);
        const std::vector<std::int32_t> tokens(18);
        train ? rank.run(tokens, tokens) : rank.evaluate(tokens, tokens);
        return rank.activations().high_water();
    };
    CHECK(peak(9, false) == peak(2, false));
    CHECK(peak(9, true) > peak(2, true));
}

TEST_CASE("the logits of the last positions alone equal those of all positions there") {
    std::vector<ModelCase> cases = test::model_cases();
    cases.push_back(large_head_case(model::ModelFamily::gpt2));
    for (const ModelCase& description : cases) {
        INFO(description.name);
        const model::ModelSpec spec = model::describe_model(description.config);
        const Tokens tokens = test::random_tokens(description);
        const auto device = device::make_cpu_device({});
        SingleRank rank(*device, spec, description.options);
        test::load(rank, test::random_weights(spec));
        const std::vector<float> all = rank.logits(tokens.inputs);
        const std::vector<float> last = rank.logits(tokens.inputs, true);
        CHECK(rank.activations().in_use() == 0);
        const auto vocabulary = static_cast<std::size_t>(description.config.vocab_size);
        const auto length = static_cast<std::size_t>(description.options.sequence_length);
        std::vector<double> expected;
        for (std::size_t row = 0; row < static_cast<std::size_t>(description.options.batch_size); ++row) {
            const auto begin = all.begin() + static_cast<std::ptrdiff_t>(((row + 1) * length - 1) * vocabulary);
            expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(vocabulary));
        }
        CHECK(relative_distance(last, expected) < 1e-6);  // products of other shapes may add in another order
    }
}

TEST_CASE("visits out of order and tensors of another shape or type are refused") {
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
                                        .target_count = memory.view(device::DType::int64, {1}),
                                        .log_z_squares = memory.view(device::DType::float64, {1})};
    const std::vector<device::Tensor> embedding{memory.view(device::DType::float32, {23, 13})};
    const std::vector<device::Tensor> turned{memory.view(device::DType::float32, {13, 23})};
    const std::vector<device::Tensor> half{memory.view(device::DType::bfloat16, {23, 13})};
    const std::vector<device::Tensor> undefined(1);
    const auto visits = model::unit_visits(spec, model::Purpose::train);
    const auto run = [&](std::size_t visit, const std::vector<device::Tensor>& weights, const auto& batch) {
        transformer.run(visits[visit], weights, {}, batch);
    };

    CHECK_THROWS_AS(run(1, embedding, micro_batch), InternalError);
    for (const auto* wrong : {&turned, &half, &undefined}) CHECK_THROWS_AS(run(0, *wrong, micro_batch), InternalError);
    CHECK_THROWS_AS(run(0, {}, micro_batch), InternalError);
    model::MicroBatch large = micro_batch;
    large.inputs = memory.view(device::DType::int32, {3, 9});
    CHECK_THROWS_AS(run(0, embedding, large), InternalError);
    model::MicroBatch incomplete = micro_batch;
    incomplete.log_z_squares = {};
    CHECK_THROWS_AS(run(0, embedding, incomplete), InternalError);
    run(0, embedding, micro_batch);
    CHECK_THROWS_AS(run(0, embedding, micro_batch), InternalError);
    CHECK_THROWS_AS(run(visits.size() - 1, embedding, micro_batch), InternalError);
    CHECK_THROWS_AS(transformer.run(model::unit_visits(spec, model::Purpose::evaluate)[1], {}, {}, micro_batch),
                    InternalError);

    model::TransformerOptions options = description.options;
    options.sequence_length = 17;
    CHECK_THROWS_AS(model::Transformer(spec, options, ledger, pool, *stream), InternalError);
    options = description.options;
    options.compute_type = device::DType::float16;
    CHECK_THROWS_AS(model::Transformer(spec, options, ledger, pool, *stream), InternalError);
    options = description.options;
    options.recompute_every = 0;
    CHECK_THROWS_AS(model::Transformer(spec, options, ledger, pool, *stream), InternalError);
}
