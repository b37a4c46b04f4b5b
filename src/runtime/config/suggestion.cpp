#include "runtime/config/document.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace mfsdp::runtime {

namespace {

/// Edit distance in which two swapped neighbours are one edit, as `trian` for `train` is one slip of the fingers
/// (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before(b.size() + 1);
    std::vector<std::size_t> previous(b.size() + 1);
    std::vector<std::size_t> current(b.size() + 1);
    std::iota(previous.begin(), previous.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        current[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            current[j] = std::min({replaced, previous[j] + 1, current[j - 1] + 1});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) current[j] = std::min(current[j], before[j - 2] + 1);
        }
        std::swap(before, previous);
        std::swap(previous, current);
    }
    return previous.back();
}

}  // namespace

std::string join(const std::vector<std::string>& words, std::string_view separator) {
    std::string out;
    for (const auto& word : words) {
        if (!out.empty()) out += separator;
        out += word;
    }
    return out;
}

std::string suggestion(std::string_view unknown, const std::vector<std::string>& known) {
    constexpr std::size_t kLongestKey = 64;
    const std::string* nearest = nullptr;
    // A third of the letters wrong is a typing error, more is another word. Longer names than any key are not compared.
    std::size_t limit = std::max<std::size_t>(1, unknown.size() / 3) + 1;
    if (unknown.size() <= kLongestKey) {
        for (const auto& candidate : known) {
            const std::size_t distance = edit_distance(unknown, candidate);
            if (distance >= limit) continue;
            limit = distance;
            nearest = &candidate;
        }
    }
    if (nearest != nullptr) return "did you mean \"" + *nearest + "\"?";
    return "known are " + join(known, ", ");
}

}  // namespace mfsdp::runtime
