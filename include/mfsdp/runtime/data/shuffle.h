#pragma once

#include <cstdint>

namespace mfsdp::runtime {

/// The order of the samples of one epoch: a keyed bijection of [0, samples) computed per place, without a table.
///
/// samples in [1, 2^62]; else InternalError. Source: docs/determinism.md, batches (a Feistel network of 12 rounds
/// with SplitMix64's finaliser, walked until it lands in the range).
class Shuffle {
  public:
    Shuffle(std::uint64_t seed, std::int64_t epoch, std::int64_t samples);

    /// Sample at `place` in [0, samples).
    [[nodiscard]] std::int64_t sample(std::int64_t place) const;

  private:
    std::uint64_t samples_;
    std::uint64_t base_;
    int half_bits_;
};

}  // namespace mfsdp::runtime
