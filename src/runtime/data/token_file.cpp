#include "mfsdp/runtime/data/token_file.h"

#include "mfsdp/base/error.h"

#include "runtime/data/token_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace mfsdp::runtime {
namespace {

// The rules of one file: those that it breaks become messages.
class HeaderCheck {
  public:
    HeaderCheck(const base::FileDescriptor& file, std::int64_t vocab_size) : file_(file), vocab_size_(vocab_size) {
        TokenFile& layout = check_.layout;
        layout.path = file.path();
        if (require(file.is_regular_file(), "not a regular file")) layout.bytes = file.size();
    }

    TokenFileCheck raw_bytes() {
        if (vocab_size_ < kByteTokenizerVocabulary) {
            throw ConfigError("config: model.vocab_size = " + std::to_string(vocab_size_) +
                              ": the byte tokenizer needs >= " + std::to_string(kByteTokenizerVocabulary));
        }
        TokenFile& layout = check_.layout;
        layout.tokens = layout.bytes + 1;
        layout.token_bytes = 1;
        if (check_.problems.empty()) require(layout.bytes >= 1, "0 bytes, a text file needs at least 1");
        if (check_.problems.empty()) check_.whole_tokens = layout.tokens;
        return std::move(check_);
    }

    TokenFileCheck tokens() {
        if (check_.problems.empty() &&
            require(check_.layout.bytes >= kTokenHeaderBytes,
                    std::to_string(check_.layout.bytes) + " bytes, shorter than the 1024-byte header")) {
            check_.layout.header_bytes = kTokenHeaderBytes;
            TokenHeader words{};
            file_.read_exact(std::as_writable_bytes(std::span(words)), 0);
            if (recognise(words)) check_size();
        }
        return std::move(check_);
    }

  private:
    bool require(bool holds, const std::string& otherwise) {
        if (!holds) check_.problems.push_back(otherwise);
        return holds;
    }

    bool require_version(std::int32_t version, std::int32_t expected) {
        return require(version == expected, std::string(name(check_.layout.kind)) + " version " +
                                                std::to_string(version) + " is not supported, expected " +
                                                std::to_string(expected));
    }

    // Fills kind, width, count, masks and vocabulary; false if what follows the header cannot be understood.
    bool recognise(const TokenHeader& words) {
        TokenFile& layout = check_.layout;
        if (std::memcmp(words.data(), kLlmqMagic.data(), kLlmqMagic.size()) == 0) return recognise_llmq(words);
        layout.tokens = words[2];
        if (words[0] == kGpt2Magic) {
            layout.kind = TokenFileKind::gpt2;
            layout.token_bytes = 2;
            return require_version(words[1], kGpt2Version);
        }
        if (words[0] == kLlama3Magic) {
            layout.kind = TokenFileKind::llama3;
            layout.token_bytes = 4;
            return require_version(words[1], kLlama3Version);
        }
        return require(false, "unknown magic " + std::to_string(words[0]) +
                                  "; for raw text set data.format = \"bytes\" (mfsdp-data: --format bytes)");
    }

    bool recognise_llmq(const TokenHeader& words) {
        TokenFile& layout = check_.layout;
        layout.kind = TokenFileKind::llmq;
        layout.token_bytes = kLlmqTokenBytes;
        layout.tokens = words[4];
        layout.vocabulary = words[5];
        layout.has_masks = words[6] == 1;
        if (!require_version(words[2], kLlmqVersion)) return false;
        const bool known_width =
            require(words[3] == kLlmqTokenBytes, std::to_string(words[3]) + " bytes per token, expected 4");
        // Another flag could be a mask of another form; taken for none, every target would count.
        const bool known_masks =
            require(words[6] == 0 || words[6] == 1, "mask flag " + std::to_string(words[6]) + ", expected 0 or 1");
        if (require(layout.vocabulary > 0, "tokenized for " + std::to_string(words[5]) + " ids")) {
            require(layout.vocabulary <= vocab_size_,
                    "tokenized for " + std::to_string(words[5]) + " ids, the model has " + std::to_string(vocab_size_));
        }
        return known_width && known_masks;
    }

    void check_size() {
        const TokenFile& layout = check_.layout;
        if (!require(layout.tokens > 0, "header says " + std::to_string(layout.tokens) + " tokens")) return;
        const std::int64_t mask_bytes = layout.has_masks ? (layout.tokens + 7) / 8 : 0;
        const std::int64_t expected = kTokenHeaderBytes + layout.tokens * layout.token_bytes + mask_bytes;
        require(layout.bytes == expected,
                std::to_string(layout.bytes) + " bytes, but the header asks for " + std::to_string(expected));
        check_.whole_tokens = std::min(layout.tokens, (layout.bytes - kTokenHeaderBytes) / layout.token_bytes);
    }

    const base::FileDescriptor& file_;
    std::int64_t vocab_size_;
    TokenFileCheck check_;
};

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

void check_ids(const base::FileDescriptor& file, const TokenFile& layout, std::int64_t vocab_size, std::int64_t begin,
               std::span<const std::int32_t> ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
        // A uint32 id above 2^31 appears as a negative number here and fails the same test.
        if (ids[i] >= 0 && ids[i] < vocab_size) continue;
        base::raise_file_error(file.use(), file.path(),
                               "token " + std::to_string(begin + static_cast<std::int64_t>(i)) + " is " +
                                   std::to_string(stored_id(layout.kind, ids[i])) + ", the model has " +
                                   std::to_string(vocab_size) + " ids");
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

TokenFileCheck check_token_file(const base::FileDescriptor& file, DataFormat format, std::int64_t vocab_size) {
    MFSDP_ASSERT(vocab_size >= 1 && vocab_size <= std::int64_t{1} << 31, "ids fit into int32");
    HeaderCheck check(file, vocab_size);
    return format == DataFormat::bytes ? check.raw_bytes() : check.tokens();
}

TokenFile inspect_token_file(const base::FileDescriptor& file, DataFormat format, std::int64_t vocab_size) {
    TokenFileCheck check = check_token_file(file, format, vocab_size);
    if (!check.problems.empty()) base::raise_file_error(file.use(), file.path(), check.problems.front());
    return std::move(check.layout);
}

std::int64_t stored_id(TokenFileKind kind, std::int32_t bits) {
    return kind == TokenFileKind::llama3 ? std::int64_t{static_cast<std::uint32_t>(bits)} : std::int64_t{bits};
}

void read_stored_tokens(const base::FileDescriptor& file, const TokenFile& layout, std::int64_t begin,
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
}

void read_tokens(const base::FileDescriptor& file, const TokenFile& layout, std::int64_t vocab_size, std::int64_t begin,
                 std::span<std::int32_t> out) {
    read_stored_tokens(file, layout, begin, out);
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
