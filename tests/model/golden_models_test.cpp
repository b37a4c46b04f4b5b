#include "mfsdp/device/cpu_device.h"

#include "model/golden_case.h"
#include "support/catch.h"
#include "support/cuda_devices.h"
#include "support/model_outcome.h"

using namespace mfsdp;
using test::GoldenCase;

namespace {

double square_sum(const std::vector<float>& values) {
    double sum = 0.0;
    for (const float value : values) sum += static_cast<double>(value) * value;
    return sum;
}

void check_case(const GoldenCase& golden, device::Device& device) {
    const nlohmann::json& tolerance = golden.expected.at("float32").at("tolerance");
    test::SingleRank rank(device, golden.spec, {.batch_size = golden.rows, .sequence_length = golden.length});
    test::load(rank, golden.weights);

    const std::vector<float> logits = rank.logits(golden.tokens.inputs);
    REQUIRE(logits.size() == golden.logits.size());
    double worst = 0.0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(logits[i]) - golden.logits[i]));
    }
    CHECK(worst <= tolerance.at("logits_absolute").get<double>());

    const test::Outcome outcome = test::outcome_of(rank, golden.tokens);
    CHECK(outcome.loss.targets == golden.expected.at("valid_targets").get<std::int64_t>());
    CHECK(std::abs(outcome.loss.mean() - golden.loss()) <= tolerance.at("loss_relative").get<double>() * golden.loss());

    double squares = 0.0;
    for (std::size_t i = 0; i < outcome.gradients.size(); ++i) {
        INFO(golden.spec.parameters[i].name);
        CHECK(golden.gradient_distance(i, outcome.gradients[i], outcome.loss.targets) <=
              tolerance.at("grad_relative_l2").get<double>());
        squares += square_sum(outcome.gradients[i]);
    }
    const double norm = std::sqrt(squares) / static_cast<double>(outcome.loss.targets);
    const double expected_norm = golden.expected.at("grad_norm").get<double>();
    CHECK(std::abs(norm - expected_norm) <= tolerance.at("grad_norm_relative").get<double>() * expected_norm);
}

}  // namespace

TEST_CASE("golden models: logits, loss, gradients and their norm lie within the tolerances of every case") {
    for (const GoldenCase& golden : test::golden_cases()) {
        INFO("golden model " << golden.name);
        check_case(golden, *device::make_cpu_device({.threads = 2}));
    }
}

TEST_CASE("golden models on the emulated CUDA device: the same tolerances") {
    for (const test::MakeDevice& make : test::emulated_cuda_devices()) {
        for (const GoldenCase& golden : test::golden_cases()) {
            INFO("golden model " << golden.name);
            check_case(golden, *make());
        }
    }
}

TEST_CASE("golden models on a GPU: the same tolerances", "[cuda]") {
    for (const test::MakeDevice& make : test::gpu_devices()) {
        for (const GoldenCase& golden : test::golden_cases()) {
            INFO("golden model " << golden.name);
            check_case(golden, *make());
        }
    }
}
