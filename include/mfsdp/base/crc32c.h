#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mfsdp::base {

/// CRC-32C (Castagnoli, reflected, start and final xor all ones) of `bytes`.
///
/// previous  CRC of the bytes before these, 0 at the start: crc32c(b, crc32c(a)) is the CRC of a followed by b
/// It detects accidents, not attacks. Source: RFC 3720, appendix B.4 (test vectors).
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);

/// The form used in files and messages: 8 lower-case hex digits.
[[nodiscard]] std::string crc32c_text(std::uint32_t crc);

}  // namespace mfsdp::base
