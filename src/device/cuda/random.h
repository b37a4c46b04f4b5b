#pragma once

#include "device/cuda/launch.h"

#include <cstdint>
#include <numbers>

namespace mfsdp::device::cuda {

/// The odd number nearest 2^64 divided by the golden ratio: the step between the states of consecutive random words.
inline constexpr std::uint64_t kMixIncrement = 0x9E3779B97F4A7C15U;

/// Turns distinct words into words that look independent; a bijection. Source: Steele, Lea, Flood 2014 (SplitMix64).
[[nodiscard]] __host__ __device__ constexpr std::uint64_t mix(std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9U;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBU;
    return word ^ (word >> 31);
}

/// The standard normal value of one index. Source: Box and Muller 1958, the cosine half of a pair, so that an index
/// needs nothing of its neighbours.
[[nodiscard]] __device__ inline double normal(std::uint64_t key, std::uint64_t index) {
    constexpr double kUnit = 0x1p-53;
    const std::uint64_t state = key + kMixIncrement * (2 * index);
    const double radius = static_cast<double>((mix(state + kMixIncrement) >> 11) + 1) * kUnit;  // in (0, 1]
    const double turn = static_cast<double>(mix(state + 2 * kMixIncrement) >> 11) * kUnit;      // in [0, 1)
    return sqrt(-2.0 * log(radius)) * cos(2.0 * std::numbers::pi * turn);
}

}  // namespace mfsdp::device::cuda
