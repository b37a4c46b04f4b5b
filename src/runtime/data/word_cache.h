#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace mfsdp::runtime {

/// Remembers the ids of short words: text repeats a few thousand words. A word has one place in the table and takes it
/// from the word that was there: the memory is fixed, whatever the text.
class WordCache {
  public:
    WordCache() : slots_(kSlots) {}

    static constexpr std::size_t kMaxWordBytes = 30;
    static constexpr std::size_t kMaxIds = 8;

    /// The ids of `word`, empty if it is not remembered.
    [[nodiscard]] std::span<const std::int32_t> find(std::string_view word) const {
        const Slot& slot = slots_[place(word)];
        const bool same =
            slot.word_bytes == word.size() && std::memcmp(slot.word.data(), word.data(), word.size()) == 0;
        return std::span(slot.ids).first(same ? slot.count : 0);
    }

    /// word  1 to kMaxWordBytes bytes; ids  1 to kMaxIds. Whatever is longer is left out.
    void insert(std::string_view word, std::span<const std::int32_t> ids) {
        if (word.size() > kMaxWordBytes || ids.size() > kMaxIds) return;
        Slot& slot = slots_[place(word)];
        slot.word_bytes = static_cast<std::uint8_t>(word.size());
        slot.count = static_cast<std::uint8_t>(ids.size());
        std::copy(word.begin(), word.end(), slot.word.begin());
        std::copy(ids.begin(), ids.end(), slot.ids.begin());
    }

  private:
    static constexpr std::size_t kSlots = std::size_t{1} << 16;

    struct Slot {  // 64 bytes, one cache line
        std::uint8_t word_bytes = 0;
        std::uint8_t count = 0;
        std::array<char, kMaxWordBytes> word{};
        std::array<std::int32_t, kMaxIds> ids{};
    };

    [[nodiscard]] static std::size_t place(std::string_view word) {
        return std::hash<std::string_view>{}(word) & (kSlots - 1);
    }

    std::vector<Slot> slots_;
};

}  // namespace mfsdp::runtime
