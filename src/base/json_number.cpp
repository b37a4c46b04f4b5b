#include "mfsdp/base/json_number.h"

#include "mfsdp/base/error.h"

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

namespace mfsdp::base {
namespace {

template <typename Float>
std::string text_of(Float value) {
    if (std::isnan(value)) return "\"nan\"";
    if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
    std::array<char, 32> text{};
    const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
    MFSDP_ASSERT(result.ec == std::errc(), "the shortest text of a double has at most 24 characters");
    return std::string(text.data(), result.ptr);
}

}  // namespace

std::string json_number(double value) { return text_of(value); }
std::string json_number(float value) { return text_of(value); }

}  // namespace mfsdp::base
