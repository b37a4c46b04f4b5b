#include "mfsdp/base/exact_sum.h"

#include "mfsdp/base/error.h"

#include <cmath>

namespace mfsdp {

namespace {

constexpr std::int64_t kMask = (std::int64_t{1} << ExactSum::kBitsPerWord) - 1;

}  // namespace

void ExactSum::add(double value) {
    MFSDP_ASSERT(std::isfinite(value) && value >= 0.0, "only finite sums of squares are added");
    if (value == 0.0) return;
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);  // value = fraction * 2^exponent, fraction in [0.5, 1)
    const auto mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
    int shift = exponent - 53 - kLowestExponent;  // position of the mantissa's lowest bit
    std::uint64_t bits = mantissa;
    if (shift < 0) {
        MFSDP_ASSERT(-shift < 64 && (bits & ((std::uint64_t{1} << -shift) - 1)) == 0, "terms are multiples of 2^-298");
        bits >>= -shift;
        shift = 0;
    }
    const int word = shift / kBitsPerWord;
    const int offset = shift % kBitsPerWord;
    MFSDP_ASSERT(word + 2 < kWords, "terms are below 2^341");
    const auto low = static_cast<unsigned __int128>(bits) << offset;
    for (int i = 0; i < 3; ++i) {
        const auto digit = static_cast<std::int64_t>(static_cast<std::uint64_t>(low >> (kBitsPerWord * i)) &
                                                     static_cast<std::uint64_t>(kMask));
        words[static_cast<std::size_t>(word) + static_cast<std::size_t>(i)] += digit;
    }
}

void ExactSum::add(const ExactSum& other) {
    for (std::size_t i = 0; i < words.size(); ++i) words[i] += other.words[i];
}

void ExactSum::normalise() {
    std::int64_t carry = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::int64_t total = words[i] + carry;
        words[i] = total & kMask;
        carry = total >> kBitsPerWord;
    }
    MFSDP_ASSERT(carry == 0, "the sum stays below 2^342");
}

double ExactSum::value() const {
    ExactSum copy = *this;
    copy.normalise();
    int top = kWords - 1;
    while (top >= 0 && copy.words[static_cast<std::size_t>(top)] == 0) --top;
    if (top < 0) return 0.0;
    // Three words hold at least 65 significant bits; anything below only decides ties and is kept as a sticky bit.
    unsigned __int128 bits = 0;
    for (int i = top; i > top - 3; --i) {
        bits =
            (bits << kBitsPerWord) | static_cast<std::uint64_t>(i >= 0 ? copy.words[static_cast<std::size_t>(i)] : 0);
    }
    bool sticky = false;
    for (int i = top - 3; i >= 0; --i) sticky = sticky || copy.words[static_cast<std::size_t>(i)] != 0;
    // Reduce to 64 bits with the sticky bit at the bottom; the conversion below then rounds once, to nearest even.
    int lowest = kLowestExponent + kBitsPerWord * (top - 2);
    while ((bits >> 64) != 0) {
        sticky = sticky || (bits & 1) != 0;
        bits >>= 1;
        ++lowest;
    }
    return std::ldexp(static_cast<double>(static_cast<std::uint64_t>(bits) | (sticky ? 1U : 0U)), lowest);
}

}  // namespace mfsdp
