#pragma once

#include <cstdint>

namespace mfsdp::device::cpu {

/// The odd number nearest 2^64 divided by the golden ratio: the step between the states of consecutive random words.
inline constexpr std::uint64_t kMixIncrement = 0x9E3779B97F4A7C15U;

/// Turns distinct words into words that look independent; a bijection. Source: Steele, Lea, Flood 2014 (SplitMix64).
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9U;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBU;
    return word ^ (word >> 31);
}

}  // namespace mfsdp::device::cpu
