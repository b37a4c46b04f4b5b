#include "runtime/data/gpt2_words.h"

#include <array>

namespace mfsdp::runtime {
namespace {

constexpr std::size_t kUndecided = 0;
constexpr std::size_t kLongestCharacter = 4;
constexpr std::array<std::string_view, 7> kContractions = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};

/// Reads characters from the front; one that later text could still complete is not read.
class Scanner {
  public:
    Scanner(const CharacterReader& characters, std::string_view text, bool is_last)
        : characters_(characters), text_(text), is_last_(is_last) {}

    /// False at the end of the text, or where more of it is needed.
    [[nodiscard]] bool can_read() const {
        return position_ < text_.size() && (is_last_ || text_.size() - position_ >= kLongestCharacter);
    }
    [[nodiscard]] bool at_end() const { return is_last_ && position_ == text_.size(); }
    [[nodiscard]] std::size_t position() const { return position_; }
    [[nodiscard]] Character peek() const { return characters_.read(text_.substr(position_)); }
    void skip(Character character) { position_ += character.bytes; }

    /// Reads as many characters of one class as there are.
    void skip_all(CharacterClass kind) {
        while (can_read()) {
            const Character next = peek();
            if (next.kind != kind) return;
            skip(next);
        }
    }

  private:
    const CharacterReader& characters_;
    std::string_view text_;
    bool is_last_;
    std::size_t position_ = 0;
};

/// A run of whitespace whose first character, `first`, is read: all of it at the end of the text; else without its last
/// character, which leads the next word if it is a space and is a word of its own if not; that one alone.
std::size_t space_word(Scanner& scanner, Character first) {
    std::size_t without_last = 0;
    Character last = first;
    while (scanner.can_read()) {
        const Character next = scanner.peek();
        if (next.kind != CharacterClass::space) return without_last > 0 ? without_last : last.bytes;
        without_last = scanner.position();
        last = next;
        scanner.skip(next);
    }
    return scanner.at_end() ? scanner.position() : kUndecided;
}

}  // namespace

std::size_t first_word(const CharacterReader& characters, std::string_view text, bool is_last) {
    Scanner scanner(characters, text, is_last);
    if (!scanner.can_read()) return kUndecided;
    if (text.front() == '\'') {
        for (const std::string_view contraction : kContractions) {
            if (text.starts_with(contraction)) return contraction.size();
        }
    }
    Character first = scanner.peek();
    scanner.skip(first);
    if (text.front() == ' ') {
        if (scanner.at_end()) return scanner.position();
        if (!scanner.can_read()) return kUndecided;
        const Character second = scanner.peek();
        if (second.kind != CharacterClass::space) {
            first = second;
            scanner.skip(second);
        }
    }
    if (first.kind == CharacterClass::space) return space_word(scanner, first);
    scanner.skip_all(first.kind);
    return scanner.can_read() || scanner.at_end() ? scanner.position() : kUndecided;
}

}  // namespace mfsdp::runtime
