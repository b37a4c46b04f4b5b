#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace mfsdp::runtime {

/// One line of a merges file: `left` and `right`, side by side, become `merged`.
struct BytePairMerge {
    std::int32_t left = 0;
    std::int32_t right = 0;
    std::int32_t merged = 0;
};

/// Byte-pair encoding of single words.
///
/// The word starts as one id per byte. Then, as long as a pair of neighbours has a merge: of all such pairs the one
/// that comes first in the list of merges is replaced everywhere in the word, from left to right, before another is
/// looked at. (Other encoders replace one place at a time: the same for lists that training made, not for every list.)
/// Time is n log n for long words. Source: Sennrich et al. 2016; the published encoder of GPT-2.
class BytePairs {
  public:
    /// byte_ids  id of each of the 256 bytes
    /// merges    in order, no pair twice; ids >= 0
    BytePairs(std::span<const std::int32_t> byte_ids, std::span<const BytePairMerge> merges);

    /// Appends the ids of `word`.
    void encode(std::string_view word, std::vector<std::int32_t>& ids);

  private:
    static constexpr std::int32_t kNone = -1;

    struct Slot {
        std::uint64_t pair = 0;
        std::int32_t rank = kNone;  ///< kNone: free
        std::int32_t merged = 0;
    };
    struct Symbol {  // of a long word: a chain through the bytes
        std::int32_t id = 0;
        std::int32_t previous = kNone;
        std::int32_t next = kNone;
    };
    struct Candidate {
        std::int32_t rank = 0;
        std::int32_t position = 0;
    };

    [[nodiscard]] const Slot* find(std::int32_t left, std::int32_t right) const;
    void merge_short(std::vector<std::int32_t>& ids, std::size_t begin);
    void merge_long(std::vector<std::int32_t>& ids, std::size_t begin);
    void add_candidate(std::int32_t position);
    void merge_at(std::int32_t position, std::int32_t rank);

    std::vector<std::int32_t> byte_ids_;
    std::vector<Slot> slots_;  // open addressing; a power of two of them, at most half in use
    std::vector<std::int32_t> ranks_;
    std::vector<Symbol> symbols_;
    std::vector<Candidate> candidates_;  // a heap
    std::vector<Candidate> batch_;
};

}  // namespace mfsdp::runtime
