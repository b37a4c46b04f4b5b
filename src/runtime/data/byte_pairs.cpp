#include "runtime/data/byte_pairs.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

namespace mfsdp::runtime {
namespace {

constexpr std::size_t kShortWord = 64;  // up to here looking at every pair each time is faster than a heap

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) | static_cast<std::uint32_t>(right);
}

std::size_t hash_of(std::uint64_t pair) {
    pair *= 0x9E3779B97F4A7C15U;
    return static_cast<std::size_t>(pair ^ (pair >> 32));
}

// A heap of the standard library has its largest on top: here the lowest rank, then the leftmost.
constexpr auto kLater = [](const auto& a, const auto& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
};

}  // namespace

BytePairs::BytePairs(std::span<const std::int32_t> byte_ids, std::span<const BytePairMerge> merges)
    : byte_ids_(byte_ids.begin(), byte_ids.end()), slots_(std::bit_ceil(2 * merges.size() + 2)) {
    MFSDP_ASSERT(byte_ids_.size() == 256, "every byte has an id");
    std::int32_t rank = 0;
    for (const BytePairMerge& merge : merges) {
        const std::uint64_t pair = pair_of(merge.left, merge.right);
        std::size_t at = hash_of(pair) & (slots_.size() - 1);
        while (slots_[at].rank != kNone) {
            MFSDP_ASSERT(slots_[at].pair != pair, "no pair has two merges");
            at = (at + 1) & (slots_.size() - 1);
        }
        slots_[at] = {pair, rank++, merge.merged};
    }
}

const BytePairs::Slot* BytePairs::find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t pair = pair_of(left, right);
    for (std::size_t at = hash_of(pair) & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
        const Slot& slot = slots_[at];
        if (slot.rank == kNone) return nullptr;
        if (slot.pair == pair) return &slot;
    }
}

void BytePairs::encode(std::string_view word, std::vector<std::int32_t>& ids) {
    MFSDP_ASSERT(word.size() <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
                 "positions in a word fit into int32");
    const std::size_t begin = ids.size();
    for (const char byte : word) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    if (word.size() <= kShortWord) {
        merge_short(ids, begin);
    } else {
        merge_long(ids, begin);
    }
}

// ranks_[i]: rank of the pair (i, i + 1) of the word, or beyond every rank.
void BytePairs::merge_short(std::vector<std::int32_t>& ids, std::size_t begin) {
    constexpr std::int32_t kNoMerge = std::numeric_limits<std::int32_t>::max();
    std::int32_t* const word = ids.data() + begin;
    std::size_t count = ids.size() - begin;
    const auto rank_at = [&](std::size_t i) {
        const Slot* const slot = find(word[i], word[i + 1]);
        return slot != nullptr ? slot->rank : kNoMerge;
    };
    ranks_.assign(count, kNoMerge);
    for (std::size_t i = 0; i + 1 < count; ++i) ranks_[i] = rank_at(i);
    while (count > 1) {
        const auto best = std::min_element(ranks_.begin(), ranks_.begin() + static_cast<std::ptrdiff_t>(count) - 1);
        if (*best == kNoMerge) break;
        const auto first = static_cast<std::size_t>(best - ranks_.begin());
        const std::int32_t left = word[first];
        const std::int32_t right = word[first + 1];
        const std::int32_t merged = find(left, right)->merged;
        std::size_t kept = first;
        for (std::size_t i = first; i < count; ++kept) {
            const bool merges = i + 1 < count && word[i] == left && word[i + 1] == right;
            word[kept] = merges ? merged : word[i];
            i += merges ? 2 : 1;
        }
        count = kept;
        for (std::size_t i = first > 0 ? first - 1 : 0; i + 1 < count; ++i) ranks_[i] = rank_at(i);
    }
    ids.resize(begin + count);
}

void BytePairs::merge_long(std::vector<std::int32_t>& ids, std::size_t begin) {
    const auto count = static_cast<std::int32_t>(ids.size() - begin);
    symbols_.clear();
    candidates_.clear();
    for (std::int32_t i = 0; i < count; ++i) {
        symbols_.push_back({ids[begin + static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : kNone});
    }
    for (std::int32_t i = 0; i < count; ++i) add_candidate(i);
    while (!candidates_.empty()) {
        // A merge may open a pair of lower rank: it waits until this pair has been replaced everywhere.
        const std::int32_t rank = candidates_.front().rank;
        batch_.clear();
        while (!candidates_.empty() && candidates_.front().rank == rank) {
            std::pop_heap(candidates_.begin(), candidates_.end(), kLater);
            batch_.push_back(candidates_.back());
            candidates_.pop_back();
        }
        for (const Candidate& candidate : batch_) merge_at(candidate.position, rank);
    }
    ids.resize(begin);
    for (std::int32_t i = 0; i != kNone; i = symbols_[static_cast<std::size_t>(i)].next) {
        ids.push_back(symbols_[static_cast<std::size_t>(i)].id);
    }
}

void BytePairs::add_candidate(std::int32_t position) {
    if (position == kNone) return;
    const Symbol& symbol = symbols_[static_cast<std::size_t>(position)];
    if (symbol.next == kNone) return;
    const Slot* const slot = find(symbol.id, symbols_[static_cast<std::size_t>(symbol.next)].id);
    if (slot == nullptr) return;
    candidates_.push_back({slot->rank, position});
    std::push_heap(candidates_.begin(), candidates_.end(), kLater);
}

// Does nothing if the pair that was here has been merged away.
void BytePairs::merge_at(std::int32_t position, std::int32_t rank) {
    Symbol& symbol = symbols_[static_cast<std::size_t>(position)];
    if (symbol.id == kNone || symbol.next == kNone) return;
    Symbol& right = symbols_[static_cast<std::size_t>(symbol.next)];
    const Slot* const slot = find(symbol.id, right.id);
    if (slot == nullptr || slot->rank != rank) return;
    symbol.id = slot->merged;
    symbol.next = right.next;
    right = {kNone, kNone, kNone};
    if (symbol.next != kNone) symbols_[static_cast<std::size_t>(symbol.next)].previous = position;
    add_candidate(symbol.previous);
    add_candidate(position);
}

}  // namespace mfsdp::runtime
