#include "device/cpu/vector_math.h"

#include "support/catch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

using namespace mfsdp::device::cpu;

namespace {

float exponential_of(float x) { return exponential(broadcast(x))[0]; }

/// Distance of `result` from `exact` in units of the last place that float32 has at `exact`.
double units_in_last_place(float result, double exact) {
    int exponent = 0;
    std::frexp(exact, &exponent);
    const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
    return std::abs(static_cast<double>(result) - exact) / unit;
}

}  // namespace

TEST_CASE("the exponential lies within two units in the last place over the whole range of float32") {
    double worst = 0.0;
    std::int64_t compared = 0, finite_overflows = 0;
    // A prime step through all bit patterns reaches every exponent and both signs.
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32U); bits += 397) {
        const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        if (std::isnan(x)) continue;
        const double exact = std::exp(static_cast<double>(x));
        const float result = exponential_of(x);
        if (exact >= 0x1.ffffffp127) {  // rounds to infinity
            finite_overflows += std::isinf(result) ? 0 : 1;
        } else {
            worst = std::max(worst, units_in_last_place(result, exact));
        }
        ++compared;
    }
    REQUIRE(compared > 10'000'000);
    CHECK(finite_overflows == 0);
    CHECK(worst <= 2.0);
}

TEST_CASE("the exponential lies within two units in the last place where results are ordinary") {
    double worst = 0.0;
    for (double x = -104.0; x <= 88.72; x += 0x1p-12) {
        const auto argument = static_cast<float>(x);
        worst = std::max(worst, units_in_last_place(exponential_of(argument), std::exp(static_cast<double>(argument))));
    }
    CHECK(worst > 0.0);
    CHECK(worst <= 2.0);
}

TEST_CASE("the exponential goes to 0, to infinity and keeps NaN") {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    CHECK(exponential_of(0.0F) == 1.0F);
    CHECK(exponential_of(-0.0F) == 1.0F);
    CHECK(exponential_of(-103.0F) > 0.0F);  // subnormal: underflow is gradual
    CHECK(exponential_of(-104.0F) == 0.0F);
    CHECK(exponential_of(-1e30F) == 0.0F);
    CHECK(exponential_of(-kInfinity) == 0.0F);
    CHECK(exponential_of(88.0F) < kInfinity);
    CHECK(exponential_of(88.8F) == kInfinity);
    CHECK(exponential_of(1e30F) == kInfinity);
    CHECK(exponential_of(kInfinity) == kInfinity);
    CHECK(std::isnan(exponential_of(std::numeric_limits<float>::quiet_NaN())));
    CHECK(std::isnan(exponential_of(-std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("an exponential has the same bits at every position of every length at every offset") {
    constexpr std::int64_t kLongest = 1003;
    std::vector<float> arguments, wanted;
    for (std::int64_t i = 0; i < kLongest + kLanes; ++i) {
        arguments.push_back(static_cast<float>(i % 211) * 0.93F - 105.0F);
        wanted.push_back(exponential_of(arguments.back()));
    }
    std::vector<float> result(arguments.size());
    std::int64_t different = 0, compared = 0;
    for (std::int64_t offset = 0; offset < kLanes; ++offset) {
        for (std::int64_t length = 1; length <= kLongest; ++length) {
            const float* const in = arguments.data() + offset;
            float* const out = result.data() + offset;
            for_vectors(length, [=](std::int64_t i, std::int64_t lanes) {
                store_lanes(out + i, exponential(load_lanes(in + i, lanes)), lanes);
            });
            for (std::int64_t i = 0; i < length; ++i) {
                const auto wanted_bits = std::bit_cast<std::uint32_t>(wanted[static_cast<std::size_t>(offset + i)]);
                different += std::bit_cast<std::uint32_t>(out[i]) != wanted_bits ? 1 : 0;
                ++compared;
            }
        }
    }
    REQUIRE(compared == kLanes * kLongest * (kLongest + 1) / 2);
    CHECK(different == 0);
}

TEST_CASE("the sigmoid is finite for every finite argument") {
    for (const float x : {-3e38F, -1e4F, -100.0F, -1.0F, 0.0F, 1.0F, 100.0F, 3e38F}) {
        const float result = sigmoid(broadcast(x))[0];
        CHECK(result == Approx(1.0 / (1.0 + std::exp(-static_cast<double>(x)))).margin(1e-37));
    }
}

TEST_CASE("the logarithm has double precision over the whole range of float32") {
    double worst = 0.0;
    std::int64_t compared = 0;
    for (std::uint32_t bits = 1; bits < 0x7F800000U; bits += 4001) {
        const float x = std::bit_cast<float>(bits);
        const double exact = std::log(static_cast<double>(x));
        worst = std::max(worst, std::abs(logarithm(x) - exact) / std::max(1.0, std::abs(exact)));
        ++compared;
    }
    REQUIRE(compared > 500'000);
    CHECK(worst < 1e-15);
    CHECK(logarithm(1.0F) == 0.0);
    CHECK(logarithm(0.0F) == -std::numeric_limits<double>::infinity());
    CHECK(logarithm(std::numeric_limits<float>::infinity()) == std::numeric_limits<double>::infinity());
    CHECK(std::isnan(logarithm(-1.0F)));
    CHECK(std::isnan(logarithm(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("a sum of vectors adds every element once, whatever the length") {
    for (std::int64_t count = 0; count <= 100; ++count) {
        std::vector<float> values(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
        const float* const data = values.data();
        const float sum =
            sum_vectors(count, [=](std::int64_t i, std::int64_t lanes) { return load_lanes(data + i, lanes); });
        CHECK(sum == static_cast<float>(count * (count + 1) / 2));  // below 2^24: exact in any order
    }
}
