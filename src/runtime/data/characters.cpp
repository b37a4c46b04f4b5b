#include "runtime/data/characters.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <cstring>

#ifdef MFSDP_WITH_ICU
#include <unicode/uchar.h>
#include <unicode/utf8.h>
#endif

namespace mfsdp::runtime {

#ifdef MFSDP_WITH_ICU

namespace {

CharacterClass class_of(UChar32 character) {
    if (character < 0) return CharacterClass::other;
    const auto category = static_cast<std::uint32_t>(U_MASK(u_charType(character)));
    if ((category & U_GC_L_MASK) != 0) return CharacterClass::letter;
    if ((category & U_GC_N_MASK) != 0) return CharacterClass::number;
    return u_isUWhiteSpace(character) ? CharacterClass::space : CharacterClass::other;
}

/// The code point at the front of `text`, negative if ill-formed, and its length.
UChar32 decode(std::string_view text, std::uint8_t& bytes) {
    const auto* const data = reinterpret_cast<const std::uint8_t*>(text.data());
    const auto length = static_cast<std::int32_t>(std::min<std::size_t>(text.size(), U8_MAX_LENGTH));
    std::int32_t position = 0;
    UChar32 character = 0;
    U8_NEXT(data, position, length, character);
    bytes = static_cast<std::uint8_t>(position);
    return character;
}

}  // namespace

bool has_unicode() noexcept { return true; }

CharacterReader::CharacterReader() {
    for (std::size_t i = 0; i < ascii_.size(); ++i) ascii_[i] = class_of(static_cast<UChar32>(i));
}

Character CharacterReader::read_wide(std::string_view text) {
    Character result;
    result.kind = class_of(decode(text, result.bytes));
    return result;
}

Utf8Fault find_utf8_fault(std::string_view text, bool is_last) {
    std::size_t at = 0;
    while (at < text.size()) {
        std::uint64_t eight = 0;  // most text is ASCII
        if (text.size() - at >= sizeof(eight)) {
            std::memcpy(&eight, text.data() + at, sizeof(eight));
            if ((eight & 0x8080808080808080U) == 0) {
                at += sizeof(eight);
                continue;
            }
        }
        std::uint8_t bytes = 0;
        if (decode(text.substr(at), bytes) < 0) {
            const bool is_cut = !is_last && at + bytes == text.size() && bytes < U8_MAX_LENGTH &&
                                U8_IS_LEAD(static_cast<std::uint8_t>(text[at]));
            return {at, is_cut ? 0U : bytes};
        }
        at += bytes;
    }
    return {at, 0};
}

#else

bool has_unicode() noexcept { return false; }

CharacterReader::CharacterReader() {
    throw ConfigError(
        "tokenizer: this program was built without ICU, which GPT-2's words need; install libicu-dev and configure it "
        "with MFSDP_WITH_ICU=ON");
}

Character CharacterReader::read_wide(std::string_view /*text*/) { return {}; }

Utf8Fault find_utf8_fault(std::string_view text, bool /*is_last*/) { return {text.size(), 0}; }

#endif

}  // namespace mfsdp::runtime
