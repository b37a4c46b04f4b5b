#include "mfsdp/runtime/data/shuffle.h"

#include "mfsdp/base/error.h"

namespace mfsdp::runtime {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
constexpr std::uint64_t kRounds = 12;  // up to eight are measurably biased for few samples

std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

}  // namespace

Shuffle::Shuffle(std::uint64_t seed, std::int64_t epoch, std::int64_t samples)
    : samples_(static_cast<std::uint64_t>(samples)),
      base_(mix(mix(seed + kGolden) + static_cast<std::uint64_t>(epoch) * kGolden)),
      half_bits_(1) {
    MFSDP_ASSERT(samples >= 1 && samples <= std::int64_t{1} << 62, "the walk needs a range it can hit");
    MFSDP_ASSERT(epoch >= 0, "epochs count from zero");
    while ((std::uint64_t{1} << (2 * half_bits_)) < samples_) ++half_bits_;
}

std::int64_t Shuffle::sample(std::int64_t place) const {
    MFSDP_ASSERT(place >= 0 && static_cast<std::uint64_t>(place) < samples_, "a place lies inside the epoch");
    const std::uint64_t low_mask = (std::uint64_t{1} << half_bits_) - 1;
    auto x = static_cast<std::uint64_t>(place);
    // The permutation is of [0, 4^half_bits); following it from a place in the range leads back into the range.
    do {
        std::uint64_t left = x >> half_bits_;
        std::uint64_t right = x & low_mask;
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
            const std::uint64_t scrambled = mix(right + mix(base_ + round * kGolden)) >> (64 - half_bits_);
            const std::uint64_t old_left = left;
            left = right;
            right = old_left ^ scrambled;
        }
        x = (left << half_bits_) | right;
    } while (x >= samples_);
    return static_cast<std::int64_t>(x);
}

}  // namespace mfsdp::runtime
