#include "mfsdp/base/hash64.h"

#include <cstddef>

namespace mfsdp::base {

std::uint64_t hash64(std::string_view text) {
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    for (const char character : text) {
        hash ^= static_cast<unsigned char>(character);
        hash *= 0x100000001B3ULL;
    }
    return hash;
}

std::string hash64_text(std::uint64_t hash) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text(16, '0');
    for (std::size_t i = 0; i < 16; ++i) text[i] = kDigits[(hash >> (60 - 4 * i)) & 0xF];
    return text;
}

}  // namespace mfsdp::base
