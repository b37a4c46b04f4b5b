#include "mfsdp/base/crc32c.h"

#include "support/catch.h"

#include <array>
#include <string>
#include <vector>

using mfsdp::base::crc32c;
using mfsdp::base::crc32c_text;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// The definition, bit by bit.
std::uint32_t plain_crc32c(const std::string& text) {
    std::uint32_t crc = 0xFFFFFFFFU;
    for (const char character : text) {
        crc ^= static_cast<unsigned char>(character);
        for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? (crc >> 1) ^ 0x82F63B78U : crc >> 1;
    }
    return ~crc;
}

std::string sample_text(std::size_t length) {
    std::string text(length, '\0');
    for (std::size_t i = 0; i < length; ++i) text[i] = static_cast<char>(i * i + 31 * i + 7);
    return text;
}

}  // namespace

TEST_CASE("crc32c has the published values") {
    CHECK(crc32c({}) == 0);
    CHECK(crc32c(bytes_of("123456789")) == 0xE3069283U);
    // RFC 3720, B.4
    CHECK(crc32c(bytes_of(std::string(32, '\0'))) == 0x8A9136AAU);
    CHECK(crc32c(bytes_of(std::string(32, '\xFF'))) == 0x62A8AB43U);
    std::string ascending(32, '\0');
    for (std::size_t i = 0; i < 32; ++i) ascending[i] = static_cast<char>(i);
    CHECK(crc32c(bytes_of(ascending)) == 0x46DD794EU);
    CHECK(crc32c_text(0x0A9136AAU) == "0a9136aa");
}

TEST_CASE("crc32c equals its definition at every length and start") {
    const std::string text = sample_text(70);
    for (std::size_t begin = 0; begin < 9; ++begin) {
        for (std::size_t end = begin; end <= text.size(); ++end) {
            const std::string part = text.substr(begin, end - begin);
            REQUIRE(crc32c(bytes_of(text).subspan(begin, end - begin)) == plain_crc32c(part));
        }
    }
}

TEST_CASE("crc32c of adjacent pieces continues to that of the whole") {
    const std::string text = sample_text(1000);
    const std::uint32_t whole = plain_crc32c(text);
    for (const std::size_t cut : {0UL, 1UL, 7UL, 8UL, 500UL, 999UL, 1000UL}) {
        const std::string first = text.substr(0, cut);
        const std::string second = text.substr(cut);
        CHECK(crc32c(bytes_of(second), crc32c(bytes_of(first))) == whole);
    }
}
