// Elements of 16 bits: every value there is, widened and rounded, against the definition of the formats.

#include "mfsdp/device/half.h"

#include "device/cpu/element.h"
#include "support/catch.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace mfsdp::device {

namespace {

/// Fields of a format: 1 sign, `exponent_bits`, `fraction_bits`.
struct Format {
    int exponent_bits, fraction_bits;
    [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
constexpr Format kBFloat16{8, 7}, kFloat16{5, 10};

/// The value of `bits`; NaN and infinity too.
double value_of(std::uint16_t bits, const Format& format) {
    const int fraction = bits & ((1 << format.fraction_bits) - 1);
    const int exponent = (bits >> format.fraction_bits) & ((1 << format.exponent_bits) - 1);
    double magnitude = 0.0;
    if (exponent == (1 << format.exponent_bits) - 1) {
        magnitude = fraction == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
        magnitude = std::ldexp(fraction, 1 - format.bias() - format.fraction_bits);
    } else {
        magnitude = std::ldexp(fraction + (1 << format.fraction_bits), exponent - format.bias() - format.fraction_bits);
    }
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/// Nearest finite magnitude or infinity, ties to even: by looking at both neighbours.
template <class T>
void check_rounding_between_neighbours(const Format& format, std::int64_t& checked) {
    const int infinity = ((1 << format.exponent_bits) - 1) << format.fraction_bits;
    for (int lower = 0; lower < infinity; ++lower) {
        const auto below = static_cast<std::uint16_t>(lower), above = static_cast<std::uint16_t>(lower + 1);
        const double low = value_of(below, format);
        // What follows the largest number counts as the number that would be there.
        const double high = above == infinity ? 2.0 * low - value_of(static_cast<std::uint16_t>(lower - 1), format)
                                              : value_of(above, format);
        const auto middle = static_cast<float>((low + high) / 2.0);
        REQUIRE(static_cast<double>(middle) == (low + high) / 2.0);  // float32 has the bits for it
        const std::uint16_t even = lower % 2 == 0 ? below : above;
        const float largest = std::numeric_limits<float>::max();
        const bool right = rounded<T>(static_cast<float>(low)).bits == below && rounded<T>(middle).bits == even &&
                           rounded<T>(std::nextafter(middle, 0.0F)).bits == below &&
                           (middle == largest || rounded<T>(std::nextafter(middle, INFINITY)).bits == above) &&
                           rounded<T>(-middle).bits == (even | 0x8000);
        if (!right) FAIL_CHECK("between " << low << " and " << high);
        ++checked;
    }
}

template <class T>
void check_format(const Format& format) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const T element{static_cast<std::uint16_t>(bits)};
        const float found = widened(element);
        const double wanted = value_of(element.bits, format);
        const bool right = std::isnan(wanted)
                               ? std::isnan(found) && std::isnan(widened(rounded<T>(found)))
                               : static_cast<double>(found) == wanted && std::signbit(found) == (bits >= 0x8000) &&
                                     rounded<T>(found).bits == element.bits;
        if (!right) FAIL_CHECK("bits " << bits << " are widened to " << found << ", wanted " << wanted);
    }
    std::int64_t checked = 0;
    check_rounding_between_neighbours<T>(format, checked);
    CHECK(checked == ((1 << format.exponent_bits) - 1) << format.fraction_bits);
    CHECK(rounded<T>(INFINITY).bits == ((1 << format.exponent_bits) - 1) << format.fraction_bits);
    CHECK(rounded<T>(std::numeric_limits<float>::denorm_min()).bits == 0);
}

template <class T>
void check_vectors() {
    // Words of all kinds, among them NaNs with every payload, and every lane and number of lanes.
    std::mt19937_64 random(3);
    std::vector<float> source(8);
    std::int64_t wrong = 0;
    for (int repeat = 0; repeat < 200000; ++repeat) {
        const std::int64_t lanes = repeat % 9;
        for (float& x : source) x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        if (repeat % 5 == 0) source[3] = std::bit_cast<float>(0x7F800001U + static_cast<std::uint32_t>(repeat));
        T stored[9];
        std::fill(std::begin(stored), std::end(stored), T{0xABCD});
        cpu::store_lanes(stored, cpu::load(source.data()), lanes);
        const cpu::Float8 loaded = cpu::load_lanes(stored, lanes, 0.5F);
        for (std::int64_t i = 0; i < 9; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const std::uint16_t wanted = i < lanes ? rounded<T>(source[at]).bits : 0xABCD;
            wrong += stored[i].bits == wanted ? 0 : 1;
            if (i == 8) continue;
            const float back = i < lanes ? widened(stored[i]) : 0.5F;
            wrong += std::bit_cast<std::uint32_t>(loaded[i]) == std::bit_cast<std::uint32_t>(back) ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("every bfloat16 and float16 widens to its value, and float32 rounds to the nearest, ties to even") {
    check_format<BFloat16>(kBFloat16);
    check_format<Float16>(kFloat16);
}

TEST_CASE("vectors of 16-bit elements are widened and rounded as single ones, and nothing beside them is touched") {
    check_vectors<BFloat16>();
    check_vectors<Float16>();
}

}  // namespace mfsdp::device
