#include "mfsdp/base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace mfsdp::base {
namespace {

static_assert(std::endian::native == std::endian::little, "the eight-byte step below reads words as little-endian");

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41 with its bits reversed
constexpr int kSlices = 8;

using Tables = std::array<std::array<std::uint32_t, 256>, kSlices>;

// tables[k][b] is the effect of byte b followed by k zero bytes, so that eight bytes take eight independent look-ups.
constexpr Tables make_tables() {
    Tables tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kPolynomial : 0U);
        tables[0][byte] = crc;
    }
    for (std::size_t slice = 1; slice < kSlices; ++slice) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = tables[slice - 1][byte];
            tables[slice][byte] = (before >> 8) ^ tables[0][before & 0xFF];
        }
    }
    return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
    std::uint32_t crc = ~previous;
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + at, 8);
        word ^= crc;
        crc = 0;
        for (std::size_t k = 0; k < kSlices; ++k) crc ^= kTables[kSlices - 1 - k][(word >> (8 * k)) & 0xFF];
    }
    for (; at < bytes.size(); ++at) {
        crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(bytes[at])) & 0xFF];
    }
    return ~crc;
}

std::string crc32c_text(std::uint32_t crc) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text(8, '0');
    for (std::size_t i = 0; i < 8; ++i) text[i] = kDigits[(crc >> (28 - 4 * i)) & 0xF];
    return text;
}

}  // namespace mfsdp::base
