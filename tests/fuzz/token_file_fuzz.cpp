// Token files: whatever the bytes, they are refused with a DataError or read exactly as they lie.
//
// Input: byte 0 chooses raw bytes or tokens, a vocabulary, and how the rest becomes a file: as it is, or with its first
// 28 bytes as the seven words of the header that mean something, before filler and body.

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/data/token_file.h"

#include "fuzz.h"

#include <algorithm>
#include <cstring>
#include <optional>

using namespace mfsdp;
using namespace mfsdp::runtime;

namespace {

constexpr std::int64_t kVocabularies[] = {1, 256, 257, 50257, 65536, 128256, std::int64_t{1} << 31, 3};

std::string file_content(const std::uint8_t* data, std::size_t size, bool as_it_is) {
    std::string content(reinterpret_cast<const char*>(data), size);
    if (!as_it_is && size > 28) content.insert(28, 1024 - 28, 'Z');
    return content;
}

std::int64_t word_of(const std::string& content, std::size_t number) {
    std::int32_t word = 0;
    std::memcpy(&word, content.data() + 4 * number, 4);
    return word;
}

// The rules of the page, written a second time and for one question only: may this file be read?
bool is_sound(const std::string& content, bool raw, std::int64_t vocab_size) {
    if (raw) return !content.empty();
    if (content.size() < 1024) return false;
    const auto body = static_cast<std::int64_t>(content.size()) - 1024;
    if (content.starts_with("BIN.TOK\n")) {
        const std::int64_t n = word_of(content, 4), masks = word_of(content, 6), vocabulary = word_of(content, 5);
        return word_of(content, 2) == 2 && word_of(content, 3) == 4 && n > 0 && (masks == 0 || masks == 1) &&
               vocabulary > 0 && vocabulary <= vocab_size && body == 4 * n + masks * ((n + 7) / 8);
    }
    const std::int64_t n = word_of(content, 2);
    if (word_of(content, 0) == 20240520) return word_of(content, 1) == 1 && n > 0 && body == 2 * n;
    return word_of(content, 0) == 20240801 && word_of(content, 1) == 7 && n > 0 && body == 4 * n;
}

std::optional<std::int64_t> id_of(const std::string& content, const TokenFile& layout, std::int64_t index,
                                  std::int64_t vocab_size) {
    if (layout.kind == TokenFileKind::bytes && index + 1 == layout.tokens) return 256;
    std::int64_t id = 0;
    std::memcpy(&id, content.data() + layout.header_bytes + index * layout.token_bytes,
                static_cast<std::size_t>(layout.token_bytes));
    if (layout.kind == TokenFileKind::llmq) id = static_cast<std::int32_t>(id);
    return id >= 0 && id < vocab_size ? std::optional(id) : std::nullopt;
}

void check_body(const base::FileDescriptor& file, const TokenFile& layout, const std::string& content,
                std::int64_t vocab_size, std::uint8_t step) {
    const std::int64_t piece = 1 + step % 61;
    std::vector<std::int32_t> ids;
    std::vector<std::uint8_t> bits;
    for (std::int64_t begin = 0; begin < layout.tokens; begin += piece) {
        const std::int64_t count = std::min(piece, layout.tokens - begin);
        ids.assign(static_cast<std::size_t>(count), -7);
        bits.assign(static_cast<std::size_t>(count), 7);
        bool valid = true;
        for (std::int64_t i = begin; i < begin + count; ++i) valid = valid && id_of(content, layout, i, vocab_size);
        try {
            read_tokens(file, layout, vocab_size, begin, ids);
            FUZZ_REQUIRE(valid);
            for (std::int64_t i = 0; i < count; ++i) {
                FUZZ_REQUIRE(ids[static_cast<std::size_t>(i)] == id_of(content, layout, begin + i, vocab_size));
            }
        } catch (const DataError&) {
            FUZZ_REQUIRE(!valid);
        }
        read_masks(file, layout, begin, bits);
        for (std::int64_t i = 0; i < count; ++i) {
            const auto at =
                static_cast<std::size_t>(layout.header_bytes + layout.tokens * layout.token_bytes + (begin + i) / 8);
            const int bit = layout.has_masks ? (content[at] >> ((begin + i) % 8)) & 1 : 1;
            FUZZ_REQUIRE(bits[static_cast<std::size_t>(i)] == bit);
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const fuzz::MemoryFile memory(0);
    if (size < 2) return 0;
    const bool raw = (data[0] & 1) != 0;
    const std::int64_t vocab_size = kVocabularies[(data[0] >> 1) & 7];
    const std::string content = file_content(data + 2, size - 2, (data[0] & 16) != 0);
    memory.set(content);
    const base::FileDescriptor file(memory.path(), base::FileMode::read, base::FileUse::data);
    const DataFormat format = raw ? DataFormat::bytes : DataFormat::tokens;
    try {
        const TokenFileCheck check = check_token_file(file, format, vocab_size);
        FUZZ_REQUIRE(check.problems.empty() == is_sound(content, raw, vocab_size));
        FUZZ_REQUIRE(!raw || vocab_size >= 257);
        FUZZ_REQUIRE(check.whole_tokens >= 0 && check.whole_tokens <= std::max<std::int64_t>(0, check.layout.tokens));
        std::vector<std::int32_t> stored(static_cast<std::size_t>(check.whole_tokens));
        TokenFile whole = check.layout;
        whole.tokens = check.whole_tokens;
        read_stored_tokens(file, whole, 0, stored);  // what is said to lie in the file does
        const TokenFile layout = inspect_token_file(file, format, vocab_size);
        FUZZ_REQUIRE(check.problems.empty());
        FUZZ_REQUIRE(layout.tokens == check.whole_tokens);
        check_body(file, layout, content, vocab_size, data[1]);
    } catch (const DataError& error) {
        FUZZ_REQUIRE(!is_sound(content, raw, vocab_size));
        FUZZ_REQUIRE(std::string_view(error.what()).starts_with("data: /proc/self/fd/700: "));
    } catch (const ConfigError&) {
        FUZZ_REQUIRE(raw && vocab_size < 257);
    }
    return 0;
}
