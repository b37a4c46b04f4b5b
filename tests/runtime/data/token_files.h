#pragma once

#include "support/temporary_directory.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace mfsdp::test {

// Token files made by hand, byte for byte as the formats describe them.

/// A header of 256 words; those not given hold filler, as in files of LLMQ.
inline std::string token_header(const std::vector<std::int32_t>& words) {
    std::array<std::int32_t, 256> header{};
    header.fill(0x5A5A5A5A);
    std::copy(words.begin(), words.end(), header.begin());
    return std::string(reinterpret_cast<const char*>(header.data()), 1024);
}

template <typename Id>
std::string id_bytes(const std::vector<std::int64_t>& ids) {
    std::string text;
    for (const std::int64_t id : ids) {
        const auto narrow = static_cast<Id>(id);
        text.append(reinterpret_cast<const char*>(&narrow), sizeof(Id));
    }
    return text;
}

inline std::int32_t count_of(const std::vector<std::int64_t>& ids) { return static_cast<std::int32_t>(ids.size()); }

inline std::string gpt2_file(const std::vector<std::int64_t>& ids) {
    return token_header({20240520, 1, count_of(ids)}) + id_bytes<std::uint16_t>(ids);
}

inline std::string llama3_file(const std::vector<std::int64_t>& ids) {
    return token_header({20240801, 7, count_of(ids)}) + id_bytes<std::uint32_t>(ids);
}

/// masks: one '0' or '1' per token, bit 0 of a byte first; none: a file without masks.
inline std::string llmq_file(const std::vector<std::int64_t>& ids, std::int32_t vocabulary,
                             const std::optional<std::string>& masks = std::nullopt) {
    std::int32_t magic[2] = {};
    std::memcpy(magic, "BIN.TOK\n", 8);
    std::string text = token_header({magic[0], magic[1], 2, 4, count_of(ids), vocabulary, masks ? 1 : 0}) +
                       id_bytes<std::int32_t>(ids);
    if (masks) {
        std::string bits((masks->size() + 7) / 8, '\0');
        for (std::size_t p = 0; p < masks->size(); ++p) {
            if ((*masks)[p] == '1') bits[p / 8] = static_cast<char>(bits[p / 8] | (1 << (p % 8)));
        }
        text += bits;
    }
    return text;
}

}  // namespace mfsdp::test
