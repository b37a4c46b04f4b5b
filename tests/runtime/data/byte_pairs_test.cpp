#include "runtime/data/byte_pairs.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"

#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>

using mfsdp::runtime::BytePairMerge;
using mfsdp::runtime::BytePairs;
using Ids = std::vector<std::int32_t>;

namespace {

std::array<std::int32_t, 256> plain_bytes() {
    std::array<std::int32_t, 256> ids{};
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
}

// The text of the algorithm: the first of the merges that has a pair in the word, everywhere, from left to right.
Ids plain_encode(const std::string& word, const std::vector<BytePairMerge>& merges) {
    Ids symbols;
    for (const char byte : word) symbols.push_back(static_cast<unsigned char>(byte));
    while (true) {
        const auto is_in_word = [&](const BytePairMerge& merge) {
            for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
                if (symbols[i] == merge.left && symbols[i + 1] == merge.right) return true;
            }
            return false;
        };
        const auto merge = std::find_if(merges.begin(), merges.end(), is_in_word);
        if (merge == merges.end()) return symbols;
        Ids next;
        for (std::size_t i = 0; i < symbols.size();) {
            const bool here = i + 1 < symbols.size() && symbols[i] == merge->left && symbols[i + 1] == merge->right;
            next.push_back(here ? merge->merged : symbols[i]);
            i += here ? 2 : 1;
        }
        symbols = next;
    }
}

// Merges in any order, also before the merges that make their parts, and several that make the same token: no training
// gives such a list, a file may hold it.
std::vector<BytePairMerge> random_merges(std::mt19937_64& random, std::size_t count, const std::string& letters) {
    std::map<std::string, std::int32_t> ids;
    std::vector<std::string> tokens;
    for (const char letter : letters) {
        tokens.emplace_back(1, letter);
        ids[tokens.back()] = static_cast<unsigned char>(letter);
    }
    std::map<std::pair<std::int32_t, std::int32_t>, BytePairMerge> merges;
    while (merges.size() < count) {
        const std::string& left = tokens[random() % tokens.size()];
        const std::string& right = tokens[random() % tokens.size()];
        const auto [merged, is_new] = ids.emplace(left + right, static_cast<std::int32_t>(1000 + ids.size()));
        merges[{ids[left], ids[right]}] = {ids[left], ids[right], merged->second};
        if (is_new) tokens.push_back(merged->first);
    }
    std::vector<BytePairMerge> list;
    for (const auto& [pair, merge] : merges) list.push_back(merge);
    std::shuffle(list.begin(), list.end(), random);
    return list;
}

}  // namespace

TEST_CASE("byte pairs merge as the plain algorithm does, for any list of merges and any length of word") {
    std::mt19937_64 random(11);
    const auto bytes = plain_bytes();
    std::size_t merged = 0;
    for (int repeat = 0; repeat < 60; ++repeat) {
        const std::string letters = repeat % 2 == 0 ? "ab" : "abcde";
        const auto merges = random_merges(random, 1 + random() % 30, letters);
        BytePairs pairs(bytes, merges);
        for (const std::size_t length : {0, 1, 2, 3, 5, 17, 63, 64, 65, 66, 100, 150}) {
            std::string word;
            for (std::size_t i = 0; i < length; ++i) word += letters[random() % letters.size()];
            Ids ids = {7};
            pairs.encode(word, ids);
            Ids expected = plain_encode(word, merges);
            expected.insert(expected.begin(), 7);
            REQUIRE(ids == expected);
            merged += length + 1 - ids.size();
        }
    }
    CHECK(merged > 5000);
}

TEST_CASE("a word of a quarter of a million bytes is merged, which takes no square of that") {
    std::vector<BytePairMerge> merges;
    for (std::int32_t level = 0; level < 15; ++level) {
        const std::int32_t half = level == 0 ? 'a' : 1000 + level - 1;
        merges.push_back({half, half, 1000 + level});
    }
    BytePairs pairs(plain_bytes(), merges);
    Ids ids;
    pairs.encode(std::string(1 << 18, 'a'), ids);
    CHECK(ids == Ids(8, 1014));
}

TEST_CASE("without merges a word is its bytes, and a pair has one merge") {
    Ids ids;
    BytePairs(plain_bytes(), {}).encode("ab\xFF", ids);
    CHECK(ids == Ids{'a', 'b', 255});
    const std::vector<BytePairMerge> twice = {{'a', 'b', 300}, {'a', 'b', 301}};
    CHECK_THROWS_AS(BytePairs(plain_bytes(), twice), mfsdp::InternalError);
}
