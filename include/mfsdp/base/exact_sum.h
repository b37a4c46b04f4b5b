#pragma once

#include <array>
#include <cstdint>

namespace mfsdp {

/// A sum of non-negative doubles without rounding: a fixed-point number of 640 bits whose lowest bit is 2^-298, kept
/// as 20 words of 32 bits in int64 (the upper half of each word is room for carries). Addition is exact and so has no
/// order: ranks may add their words as integers and obtain the same bits for every way of cutting the terms.
///
/// Every finite row sum of squares of float32 values fits: the smallest square is 2^-298, the largest below 2^256.
struct ExactSum {
    static constexpr int kWords = 20;
    static constexpr int kBitsPerWord = 32;
    static constexpr int kLowestExponent = -298;

    std::array<std::int64_t, kWords> words{};

    /// Adds a finite, non-negative value that is a multiple of 2^-298 below 2^341; InternalError otherwise.
    void add(double value);
    void add(const ExactSum& other);
    /// Moves carries up so that each word is in [0, 2^32). Needed at the latest after 2^30 additions.
    void normalise();
    /// The sum rounded once to double.
    [[nodiscard]] double value() const;
};

}  // namespace mfsdp
