#pragma once

#include "runtime/data/characters.h"

#include <cstddef>
#include <string_view>

namespace mfsdp::runtime {

/// Length of the first word of `text` (at least one byte), as GPT-2 cuts text before it merges bytes:
///
///     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///
/// is_last  nothing follows `text`. If something may follow, 0 says that it could change the word: ask again with more.
/// Source: the published encoder of GPT-2.
[[nodiscard]] std::size_t first_word(const CharacterReader& characters, std::string_view text, bool is_last);

}  // namespace mfsdp::runtime
