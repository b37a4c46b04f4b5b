#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mfsdp::base {

/// FNV-1a, 64 bit, of the bytes of `text`. It detects accidents, not attacks.
/// Source: Fowler, Noll, Vo; draft-eastlake-fnv.
[[nodiscard]] std::uint64_t hash64(std::string_view text);

/// The form used in files and messages: 16 lower-case hex digits.
[[nodiscard]] std::string hash64_text(std::uint64_t hash);

}  // namespace mfsdp::base
