#pragma once

#include "mfsdp/base/exact_sum.h"

#include "device/cuda/launch.h"

#include <bit>
#include <cstdint>

namespace mfsdp::device::cuda {

/// Adds a finite value >= 0 to the words of an ExactSum, with integer additions that threads may do at the same time.
/// The value is a sum of squares of floats: a multiple of 2^-298 below 2^341.
__device__ inline void add_exactly(unsigned long long* words, double value) {
    constexpr int kFractionBits = 52, kBias = 1023;
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const int exponent = static_cast<int>(bits >> kFractionBits);
    if (exponent == 0) return;  // zero: the smallest square is far above the subnormal numbers
    std::uint64_t fraction = (bits & ((std::uint64_t{1} << kFractionBits) - 1)) | std::uint64_t{1} << kFractionBits;
    int shift = exponent - kBias - kFractionBits - ExactSum::kLowestExponent;  // of the fraction's lowest bit
    if (shift < 0) {
        fraction >>= -shift;  // what falls off is zero
        shift = 0;
    }
    const int word = shift / ExactSum::kBitsPerWord, offset = shift % ExactSum::kBitsPerWord;
    const std::uint64_t low = fraction << offset;
    const std::uint64_t high = offset == 0 ? 0 : fraction >> (64 - offset);
    atomicAdd(words + word, static_cast<unsigned long long>(low & 0xFFFFFFFFU));
    atomicAdd(words + word + 1, static_cast<unsigned long long>(low >> 32U));
    if (high != 0) atomicAdd(words + word + 2, static_cast<unsigned long long>(high));
}

/// Adds words to an ExactSum's and moves carries up, so that each is in [0, 2^32).
__device__ inline void add_and_normalise(std::int64_t* words, const unsigned long long* added) {
    std::int64_t carry = 0;
    for (int i = 0; i < ExactSum::kWords; ++i) {
        const std::int64_t total = words[i] + static_cast<std::int64_t>(added[i]) + carry;
        words[i] = total & 0xFFFFFFFF;
        carry = total >> ExactSum::kBitsPerWord;
    }
}

}  // namespace mfsdp::device::cuda
