#pragma once

#include "device/cpu/float8.h"

#include <cmath>
#include <limits>

namespace mfsdp::device::cpu {

/// e^x, within 2 ulp of the exact value over the whole range: 0 below about -104 (gradual underflow above it),
/// infinity above about 88.7, NaN for NaN. The same operations in every lane, so the same bits wherever x stands.
///
/// x = n ln 2 + r with |r| <= ln(2)/2; e^r = 1 + r + r^2 q(r), q a polynomial of degree 4 fitted at Chebyshev points
/// (relative error below 1e-8); the result is scaled by 2^n in two steps, so that subnormal results round once.
[[nodiscard]] inline Float8 exponential(Float8 x) {
    constexpr float kLog2E = 1.44269504089F;
    constexpr float kLn2High = 0x1.62e4p-1F;        // 15 bits: n * kLn2High is exact
    constexpr float kLn2Low = 0x1.7f7d1cp-20F;      // ln 2 - kLn2High
    constexpr float kRoundToInteger = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    constexpr float kLowest = -104.0F;              // e^-104 < 2^-150 rounds to 0
    constexpr float kHighest = 89.0F;               // e^89 > 2^128 overflows

    x = x < broadcast(kLowest) ? broadcast(kLowest) : x;  // a comparison with NaN is false: NaN passes
    x = x > broadcast(kHighest) ? broadcast(kHighest) : x;
    const Float8 shifted = fma(x, broadcast(kLog2E), broadcast(kRoundToInteger));
    const Float8 n = shifted - broadcast(kRoundToInteger);
    Float8 r = fma(n, broadcast(-kLn2High), x);
    r = fma(n, broadcast(-kLn2Low), r);

    Float8 q = broadcast(0.00139261835877F);
    q = fma(q, r, broadcast(0.00836317905272F));
    q = fma(q, r, broadcast(0.0416665546172F));
    q = fma(q, r, broadcast(0.166665769897F));
    q = fma(q, r, broadcast(0.5F));
    const Float8 power = fma(q * r, r, r) + broadcast(1.0F);

    // The low bits of `shifted` hold n; half of it and the rest are exponents of normal numbers for every n in range.
    const Word8 integer = reinterpret_cast<Word8>(shifted) - reinterpret_cast<Word8>(broadcast(kRoundToInteger));
    const Word8 half = reinterpret_cast<Word8>(reinterpret_cast<Mask8>(integer) >> 1);
    const Word8 bias = Word8{} + 127U;
    const Float8 first = reinterpret_cast<Float8>((half + bias) << 23);
    const Float8 second = reinterpret_cast<Float8>((integer - half + bias) << 23);
    return power * first * second;
}

/// 1 / (1 + e^-x): 0 for very negative x, never NaN for a finite x.
[[nodiscard]] inline Float8 sigmoid(Float8 x) { return broadcast(1.0F) / (broadcast(1.0F) + exponential(-x)); }

/// Natural logarithm of a float, in double and nearly correctly rounded when cut to float: -infinity at 0, NaN below.
///
/// x = 2^k m with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh(s), s = (m - 1)/(m + 1), |s| <= 0.172, as its power
/// series up to s^19 (remainder below 1e-17). Used once for each row, so speed does not matter.
[[nodiscard]] inline double logarithm(float x) {
    if (!(x > 0.0F)) {
        return x == 0.0F ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    }
    if (x > std::numeric_limits<float>::max()) return std::numeric_limits<double>::infinity();
    constexpr double kLn2 = 0.693147180559945309417;
    constexpr double kSqrtHalf = 0.707106781186547524401;
    int exponent = 0;
    double mantissa = std::frexp(static_cast<double>(x), &exponent);  // in [1/2, 1)
    if (mantissa < kSqrtHalf) {
        mantissa *= 2.0;
        --exponent;
    }
    const double s = (mantissa - 1.0) / (mantissa + 1.0);
    const double square = s * s;
    double series = 0.0;
    for (int power = 19; power >= 1; power -= 2) series = std::fma(series, square, 1.0 / power);
    return std::fma(static_cast<double>(exponent), kLn2, 2.0 * s * series);
}

}  // namespace mfsdp::device::cpu
