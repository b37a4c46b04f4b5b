#pragma once

#include <bit>
#include <cstdint>

namespace mfsdp::device {

/// Elements of 16 bits as they are stored. They are read by widening to float32, which is exact, and written by
/// rounding a float32 to nearest, ties to even; NaN stays NaN, what is too large becomes infinite.
struct BFloat16 {
    std::uint16_t bits = 0;
};
struct Float16 {
    std::uint16_t bits = 0;
};

[[nodiscard]] constexpr float widened(float value) { return value; }
[[nodiscard]] constexpr float widened(BFloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}
[[nodiscard]] constexpr float widened(Float16 value) {
    const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16U;
    const std::uint32_t magnitude = value.bits & 0x7FFFU;
    // Exponents differ by 112: one multiplication moves normal numbers and makes subnormal ones normal.
    const float scaled = std::bit_cast<float>(magnitude << 13U) * 0x1p112F;
    const std::uint32_t special = magnitude << 13U | 0x7F800000U | (magnitude > 0x7C00U ? 0x00400000U : 0U);
    return std::bit_cast<float>(sign | (magnitude >= 0x7C00U ? special : std::bit_cast<std::uint32_t>(scaled)));
}

/// value rounded to the stored type T: float, BFloat16 or Float16.
template <class T>
[[nodiscard]] constexpr T rounded(float value);

template <>
[[nodiscard]] constexpr float rounded<float>(float value) {
    return value;
}

template <>
[[nodiscard]] constexpr BFloat16 rounded<BFloat16>(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (value != value) return {static_cast<std::uint16_t>(bits >> 16U | 0x40U)};
    return {static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U)};
}

template <>
[[nodiscard]] constexpr Float16 rounded<Float16>(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 16U & 0x8000U, magnitude = bits & 0x7FFFFFFFU;
    std::uint32_t result = 0;
    if (value != value) {
        result = 0x7C00U | 0x200U | (magnitude >> 13U & 0x3FFU);
    } else if (magnitude >= 0x477FF000U) {  // 65520 and more
        result = 0x7C00U;
    } else if (magnitude < 0x38800000U) {  // below 2^-14: units of 2^-24, which adding 1/2 brings to the lowest bits
        const float sum = std::bit_cast<float>(magnitude) + 0.5F;
        result = std::bit_cast<std::uint32_t>(sum) - 0x3F000000U;
    } else {
        result = (magnitude - 0x38000000U + 0xFFFU + (magnitude >> 13U & 1U)) >> 13U;
    }
    return {static_cast<std::uint16_t>(sign | result)};
}

}  // namespace mfsdp::device
