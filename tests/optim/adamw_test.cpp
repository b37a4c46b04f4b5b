#include "mfsdp/optim/adamw.h"

#include "optim/bench.h"
#include "support/catch.h"

#include <cmath>

using namespace mfsdp;
using namespace mfsdp::optim;
using namespace mfsdp::optim::test;

namespace {

struct Run {
    Bench& bench;
    AdamWOptions options;
    device::Tensor weight, exp_avg, exp_avg_sq;
    double learning_rate = 0.05, weight_decay = 0.1;
    std::int64_t steps = 0;

    Run(Bench& b, const AdamWOptions& o, const Matrix& initial)
        : bench(b),
          options(o),
          weight(b.upload(initial)),
          exp_avg(b.zeros(initial.rows, initial.columns)),
          exp_avg_sq(b.zeros(initial.rows, initial.columns)) {}

    void step(const Matrix& gradient, device::GradientScale scale = {}) {
        adamw_step(bench.stream(), options,
                   {.weight = weight,
                    .gradient = bench.upload(gradient),
                    .exp_avg = exp_avg,
                    .exp_avg_sq = exp_avg_sq,
                    .gradient_scale = scale,
                    .learning_rate = learning_rate,
                    .weight_decay = weight_decay,
                    .step = ++steps});
    }
};

Matrix filled(std::int64_t rows, std::int64_t columns, float value) {
    Matrix result(rows, columns);
    for (float& element : result.values) element = value;
    return result;
}

}  // namespace

TEST_CASE("AdamW follows a plain double loop", "[optim]") {
    Bench bench;
    const AdamWOptions options{.beta1 = 0.8, .beta2 = 0.999, .epsilon = 1e-3};
    const Matrix initial = convert<float>(gaussian(5, 9, 1));
    Run run(bench, options, initial);
    Exact weight = convert<double>(initial), m(5, 9), v(5, 9);
    for (int t = 1; t <= 10; ++t) {
        const Exact gradient = gaussian(5, 9, 10 + static_cast<std::uint64_t>(t));
        run.step(convert<float>(gradient));
        for (std::size_t i = 0; i < weight.values.size(); ++i) {
            const double g = gradient.values[i];
            m.values[i] = 0.8 * m.values[i] + 0.2 * g;
            v.values[i] = 0.999 * v.values[i] + 0.001 * g * g;
            const double m_hat = m.values[i] / (1.0 - std::pow(0.8, t));
            const double v_hat = v.values[i] / (1.0 - std::pow(0.999, t));
            weight.values[i] = weight.values[i] * (1.0 - 0.05 * 0.1) - 0.05 * m_hat / (std::sqrt(v_hat) + 1e-3);
        }
        CHECK(error_of(bench.download(run.weight), weight) < 2e-6);
        CHECK(error_of(bench.download(run.exp_avg), m) < 2e-6);
        CHECK(error_of(bench.download(run.exp_avg_sq), v) < 5e-6);
    }
}

TEST_CASE("AdamW without a gradient only decays", "[optim]") {
    Bench bench;
    Run run(bench, {}, filled(1, 1, 1.0F));
    run.learning_rate = 0.1;
    run.step(filled(1, 1, 0.0F));
    CHECK(bench.download(run.weight).values[0] == 0.99F);
}

TEST_CASE("AdamW adds epsilon to the corrected root", "[optim]") {
    Bench bench;
    Run run(bench, {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8}, filled(1, 1, 0.0F));
    run.learning_rate = 1.0;
    run.step(filled(1, 1, 1e-8F));
    CHECK(bench.download(run.weight).values[0] == Approx(-0.5).epsilon(1e-5));
}

TEST_CASE("AdamW with a learning rate of 0 leaves the weight and moves the state", "[optim]") {
    Bench bench;
    const Matrix initial = convert<float>(gaussian(3, 4, 2));
    Run run(bench, {}, initial);
    run.learning_rate = 0.0;
    run.step(filled(3, 4, 2.0F));
    CHECK(same_bits(bench.download(run.weight), initial));
    CHECK(bench.download(run.exp_avg).values[5] == Approx(0.2).epsilon(1e-6));
    CHECK(bench.download(run.exp_avg_sq).values[5] == Approx(0.2).epsilon(1e-6));
}

TEST_CASE("AdamW takes the gradient sum times 1/targets and then the clip factor, each rounded once", "[optim]") {
    Bench bench;
    const Matrix initial = convert<float>(gaussian(3, 4, 3)), sum = convert<float>(gaussian(3, 4, 4));
    const device::GradientScale scale{.inverse_targets = 1.0F / 11.0F, .clip = 0.3F};
    Matrix mean = sum;
    for (float& value : mean.values) value = value * scale.inverse_targets * scale.clip;
    Run summed(bench, {}, initial), averaged(bench, {}, initial);
    summed.step(sum, scale);
    averaged.step(mean);
    CHECK(same_bits(bench.download(summed.weight), bench.download(averaged.weight)));
    CHECK(same_bits(bench.download(summed.exp_avg_sq), bench.download(averaged.exp_avg_sq)));
}

TEST_CASE("AdamW has the same bits however the rows are cut and on every form of the device", "[optim]") {
    const Matrix initial = convert<float>(gaussian(13, 33, 5)), gradient = convert<float>(gaussian(13, 33, 6));
    Matrix want;
    for (const device::CpuDeviceOptions& options : device_variants()) {
        for (const std::vector<std::int64_t>& cut :
             {std::vector<std::int64_t>{13}, std::vector<std::int64_t>{0, 4, 9}, std::vector<std::int64_t>{1, 12, 0}}) {
            Bench bench(options);
            Run run(bench, {}, initial);
            const device::Tensor source = bench.upload(gradient);
            for (std::int64_t t = 1; t <= 3; ++t) {
                std::int64_t row = 0;
                for (const std::int64_t count : cut) {
                    adamw_step(bench.stream(), run.options,
                               {.weight = run.weight.slice(0, row, count),
                                .gradient = source.slice(0, row, count),
                                .exp_avg = run.exp_avg.slice(0, row, count),
                                .exp_avg_sq = run.exp_avg_sq.slice(0, row, count),
                                .learning_rate = 0.01,
                                .weight_decay = 0.1,
                                .step = t});
                    row += count;
                }
            }
            const Matrix got = bench.download(run.weight);
            if (want.values.empty()) want = got;
            CHECK(same_bits(got, want));
        }
    }
}

TEST_CASE("AdamW declares two states shaped like the parameter and counts steps from 1", "[optim]") {
    const auto states = adamw_states({7});
    REQUIRE(states.size() == 2);
    CHECK(states[0].name == "exp_avg");
    CHECK(states[1].name == "exp_avg_sq");
    for (const StateSpec& state : states) {
        CHECK(state.shape == std::vector<std::int64_t>{7});
        CHECK(state.element);
    }
    Bench bench;
    Run run(bench, {}, filled(1, 1, 1.0F));
    run.steps = -1;
    CHECK_THROWS_AS(run.step(filled(1, 1, 0.0F)), InternalError);
}
