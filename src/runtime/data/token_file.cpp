#include "mfsdp/runtime/data/token_file.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace mfsdp::runtime {
namespace {

constexpr std::int64_t kHeaderBytes = 1024;
constexpr std::size_t kHeaderWords = 256;
constexpr std::int32_t kGpt2Magic = 20240520;
constexpr std::int32_t kLlama3Magic = 20240801;
constexpr std::array<char, 8> kLlmqMagic = {'B', 'I', 'N', '.', 'T', 'O', 'K', '\n'};

using Header = std::array<std::int32_t, kHeaderWords>;

void require(const base::FileDescriptor& file, bool holds, const std::string& otherwise) {
    if (!holds) base::raise_file_error(file.use(), file.path(), otherwise);
}

Header read_header(const base::FileDescriptor& file, std::int64_t file_bytes) {
    require(file, file_bytes >= kHeaderBytes, std::to_string(file_bytes) + " bytes, shorter than the 1024-byte header");
    Header words{};
    file.read_exact(std::as_writable_bytes(std::span(words)), 0);
    return words;
}

void require_version(const base::FileDescriptor& file, TokenFileKind kind, std::int32_t version,
                     std::int32_t expected) {
    require(file, version == expected,
            std::string(name(kind)) + " version " + std::to_string(version) + " is not supported, expected " +
                std::to_string(expected));
}

// Fills kind, width, count and masks; returns the vocabulary the header names, 0 if it names none.
std::int64_t recognise(const base::FileDescriptor& file, const Header& words, TokenFile& layout) {
    if (std::memcmp(words.data(), kLlmqMagic.data(), kLlmqMagic.size()) == 0) {
        layout.kind = TokenFileKind::llmq;
        require_version(file, layout.kind, words[2], 2);
        require(file, words[3] == 4, std::to_string(words[3]) + " bytes per token, expected 4");
        layout.token_bytes = 4;
        layout.tokens = words[4];
        layout.has_masks = words[6] == 1;
        return words[5];
    }
    if (words[0] == kGpt2Magic) {
        layout.kind = TokenFileKind::gpt2;
        require_version(file, layout.kind, words[1], 1);
        layout.token_bytes = 2;
    } else if (words[0] == kLlama3Magic) {
        layout.kind = TokenFileKind::llama3;
        require_version(file, layout.kind, words[1], 7);
        layout.token_bytes = 4;
    } else {
        require(file, false,
                "unknown magic " + std::to_string(words[0]) + "; for raw text set data.format = \"bytes\"");
    }
    layout.tokens = words[2];
    return 0;
}

TokenFile inspect_bytes(const base::FileDescriptor& file, std::int64_t file_bytes, std::int64_t vocab_size) {
    if (vocab_size < kByteTokenizerVocabulary) {
        throw ConfigError("config: model.vocab_size = " + std::to_string(vocab_size) +
                          ": the byte tokenizer needs >= " + std::to_string(kByteTokenizerVocabulary));
    }
    require(file, file_bytes >= 1, "0 bytes, a text file needs at least 1");
    return {file.path(), TokenFileKind::bytes, file_bytes, file_bytes + 1, 0, 1, false};
}

// Widens `count` ids of type Id in place: they lie at the end of the memory of `out`, so that writing id i never
// reaches an id that is still to be read.
template <typename Id>
void widen(std::span<std::int32_t> out, std::size_t count) {
    const auto* narrow = reinterpret_cast<const std::byte*>(out.data()) + count * (sizeof(std::int32_t) - sizeof(Id));
    for (std::size_t i = 0; i < count; ++i) {
        Id id{};
        std::memcpy(&id, narrow + i * sizeof(Id), sizeof(Id));
        out[i] = static_cast<std::int32_t>(id);
    }
}

// A uint32 id above 2^31 appears as a negative number here and fails the same test; the message shows it unsigned.
void check_ids(const base::FileDescriptor& file, const TokenFile& layout, std::int64_t vocab_size, std::int64_t begin,
               std::span<const std::int32_t> ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] >= 0 && ids[i] < vocab_size) continue;
        const std::int64_t id = layout.kind == TokenFileKind::llama3 ? std::int64_t{static_cast<std::uint32_t>(ids[i])}
                                                                     : std::int64_t{ids[i]};
        require(file, false,
                "token " + std::to_string(begin + static_cast<std::int64_t>(i)) + " is " + std::to_string(id) +
                    ", the model has " + std::to_string(vocab_size) + " ids");
    }
}

void check_range(const TokenFile& layout, std::int64_t begin, std::size_t count) {
    MFSDP_ASSERT(begin >= 0 && begin <= layout.tokens && static_cast<std::int64_t>(count) <= layout.tokens - begin,
                 "the range lies inside " + layout.path);
}

}  // namespace

std::string_view name(TokenFileKind kind) {
    switch (kind) {
        case TokenFileKind::gpt2:
            return "llm.c GPT-2";
        case TokenFileKind::llama3:
            return "llm.c Llama-3";
        case TokenFileKind::llmq:
            return "BIN.TOK";
        case TokenFileKind::bytes:
            return "raw bytes";
    }
    raise_internal_error("kind", __FILE__, __LINE__, "every kind of token file has a name");
}

TokenFile inspect_token_file(const base::FileDescriptor& file, DataFormat format, std::int64_t vocab_size) {
    MFSDP_ASSERT(vocab_size >= 1 && vocab_size <= std::int64_t{1} << 31, "ids fit into int32");
    require(file, file.is_regular_file(), "not a regular file");
    const std::int64_t file_bytes = file.size();
    if (format == DataFormat::bytes) return inspect_bytes(file, file_bytes, vocab_size);

    TokenFile layout;
    layout.path = file.path();
    layout.bytes = file_bytes;
    layout.header_bytes = kHeaderBytes;
    const std::int64_t vocabulary = recognise(file, read_header(file, file_bytes), layout);
    require(file, layout.tokens > 0, "header says " + std::to_string(layout.tokens) + " tokens");
    const std::int64_t mask_bytes = layout.has_masks ? (layout.tokens + 7) / 8 : 0;
    const std::int64_t expected = kHeaderBytes + layout.tokens * layout.token_bytes + mask_bytes;
    require(file, file_bytes == expected,
            std::to_string(file_bytes) + " bytes, but the header asks for " + std::to_string(expected));
    require(file, vocabulary <= vocab_size,
            "tokenized for " + std::to_string(vocabulary) + " ids, the model has " + std::to_string(vocab_size));
    return layout;
}

void read_tokens(const base::FileDescriptor& file, const TokenFile& layout, std::int64_t vocab_size, std::int64_t begin,
                 std::span<std::int32_t> out) {
    check_range(layout, begin, out.size());
    if (out.empty()) return;
    std::span<std::int32_t> stored = out;
    if (layout.kind == TokenFileKind::bytes && begin + static_cast<std::int64_t>(out.size()) == layout.tokens) {
        out.back() = static_cast<std::int32_t>(kEndOfDocument);
        stored = out.first(out.size() - 1);
    }
    const auto width = static_cast<std::size_t>(layout.token_bytes);
    const auto raw = std::as_writable_bytes(stored).last(stored.size() * width);
    file.read_exact(raw, layout.header_bytes + begin * layout.token_bytes);
    if (width == 2) widen<std::uint16_t>(stored, stored.size());
    if (width == 1) widen<std::uint8_t>(stored, stored.size());
    check_ids(file, layout, vocab_size, begin, out);
}

void read_masks(const base::FileDescriptor& file, const TokenFile& layout, std::int64_t begin,
                std::span<std::uint8_t> out) {
    check_range(layout, begin, out.size());
    if (!layout.has_masks) {
        std::memset(out.data(), 1, out.size());
        return;
    }
    const std::int64_t mask_begin = layout.header_bytes + layout.tokens * layout.token_bytes;
    std::array<std::uint8_t, 4096> packed{};
    for (std::size_t done = 0; done < out.size();) {
        const std::int64_t bit = begin + static_cast<std::int64_t>(done);
        const auto shift = static_cast<std::size_t>(bit % 8);
        const std::size_t count = std::min(out.size() - done, packed.size() * 8 - shift);
        const auto bytes = std::span(packed).first((shift + count + 7) / 8);
        file.read_exact(std::as_writable_bytes(bytes), mask_begin + bit / 8);
        for (std::size_t i = 0; i < count; ++i) {
            out[done + i] = static_cast<std::uint8_t>((bytes[(shift + i) / 8] >> ((shift + i) % 8)) & 1U);
        }
        done += count;
    }
}

}  // namespace mfsdp::runtime
