#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mfsdp::runtime {

/// The classes that GPT-2's words are made of: \p{L}, \p{N}, \s (White_Space) and all the rest.
enum class CharacterClass : std::uint8_t { letter, number, space, other };

struct Character {
    CharacterClass kind = CharacterClass::other;
    std::uint8_t bytes = 0;  ///< 1 to 4
};

/// Whether this build has the tables of Unicode (ICU).
[[nodiscard]] bool has_unicode() noexcept;

/// Classifies the characters of UTF-8 text. An ill-formed sequence is one character of class other. ConfigError in a
/// build without ICU.
class CharacterReader {
  public:
    CharacterReader();

    /// The character at the front of `text`, which has at least one byte.
    [[nodiscard]] Character read(std::string_view text) const {
        const auto byte = static_cast<unsigned char>(text.front());
        return byte < ascii_.size() ? Character{ascii_[byte], 1} : read_wide(text);
    }

  private:
    [[nodiscard]] static Character read_wide(std::string_view text);

    std::array<CharacterClass, 128> ascii_{};
};

/// Where UTF-8 text first breaks its rules.
struct Utf8Fault {
    std::size_t at = 0;  ///< bytes before it are well-formed; text.size() if all are
    std::size_t bytes =
        0;  ///< of the longest part that could have begun a sequence, which is what U+FFFD replaces; 0: no fault
};

/// Finds the first ill-formed sequence. A sequence that the end of `text` cuts off is one only if `is_last`; else `at`
/// is where it begins and `bytes` is 0. Source: Unicode 15, section 3.9, substitution of maximal subparts.
[[nodiscard]] Utf8Fault find_utf8_fault(std::string_view text, bool is_last);

}  // namespace mfsdp::runtime
