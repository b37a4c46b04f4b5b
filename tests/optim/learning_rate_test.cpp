#include "mfsdp/optim/learning_rate.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"

#include <cmath>
#include <vector>

using mfsdp::optim::DecayStyle;
using mfsdp::optim::LearningRateSchedule;

namespace {

LearningRateSchedule schedule(DecayStyle style, double min_ratio) {
    // 2 steps of warm-up, 4 constant, 4 of decay.
    return {.warmup_steps = 2, .decay_steps = 4, .total_steps = 10, .style = style, .min_ratio = min_ratio};
}

void check_factors(const LearningRateSchedule& actual, const std::vector<double>& expected) {
    REQUIRE(!expected.empty());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        INFO("step " << i + 1);
        CHECK(actual.factor(static_cast<std::int64_t>(i) + 1) == Approx(expected[i]).epsilon(1e-12));
    }
}

}  // namespace

TEST_CASE("the learning rate factor follows the hand-computed shape of every style") {
    check_factors(schedule(DecayStyle::linear, 0.2), {0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2});
    // cos(pi/4) = 0.70710678118654752
    check_factors(schedule(DecayStyle::cosine, 0.2), {0.5, 1, 1, 1, 1, 1, 0.2 + 0.4 * 1.70710678118654752, 0.6,
                                                      0.2 + 0.4 * 0.29289321881345248, 0.2, 0.2});
    // sqrt(1/4) = 0.5, sqrt(1/2) = 0.70710678118654752, sqrt(3/4) = 0.86602540378443865
    check_factors(schedule(DecayStyle::wsd, 0.2),
                  {0.5, 1, 1, 1, 1, 1, 0.6, 1 - 0.8 * 0.70710678118654752, 1 - 0.8 * 0.86602540378443865, 0.2, 0.2});
    check_factors(schedule(DecayStyle::constant, 0.2), {0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("the last step of the learning rate has exactly the final ratio") {
    for (const auto style : {DecayStyle::linear, DecayStyle::cosine, DecayStyle::wsd}) {
        for (const double ratio : {0.0, 0.1, 1.0 / 3.0, 3e-5 / 3e-4, 1.0}) {
            CHECK(schedule(style, ratio).factor(10) == ratio);
            CHECK(schedule(style, ratio).factor(1000000) == ratio);
        }
    }
}

TEST_CASE("a schedule without warm-up or decay is constant") {
    for (const auto style : {DecayStyle::linear, DecayStyle::cosine, DecayStyle::wsd, DecayStyle::constant}) {
        const LearningRateSchedule plain{.total_steps = 3, .style = style, .min_ratio = 0.1};
        for (std::int64_t step = 1; step <= 5; ++step) CHECK(plain.factor(step) == 1.0);
    }
    const LearningRateSchedule only_warmup{.warmup_steps = 3, .total_steps = 3, .min_ratio = 0.1};
    CHECK(only_warmup.factor(1) == 1.0 / 3.0);
    CHECK(only_warmup.factor(3) == 1.0);
}

TEST_CASE("a run of one step that only decays ends at the final ratio") {
    const LearningRateSchedule one{.decay_steps = 1, .total_steps = 1, .style = DecayStyle::linear, .min_ratio = 0.25};
    CHECK(one.factor(1) == 0.25);
}

TEST_CASE("the learning rate never rises during decay and never falls during warm-up") {
    for (const auto style : {DecayStyle::linear, DecayStyle::cosine, DecayStyle::wsd}) {
        const LearningRateSchedule long_run{
            .warmup_steps = 100, .decay_steps = 900, .total_steps = 1000, .style = style, .min_ratio = 0.1};
        for (std::int64_t step = 1; step < 100; ++step) CHECK(long_run.factor(step) < long_run.factor(step + 1));
        for (std::int64_t step = 100; step < 1000; ++step) CHECK(long_run.factor(step) > long_run.factor(step + 1));
    }
}

TEST_CASE("there is no learning rate for step 0") {
    CHECK_THROWS_AS(schedule(DecayStyle::linear, 0.1).factor(0), mfsdp::InternalError);
}
