#pragma once

#include "mfsdp/base/file_descriptor.h"
#include "mfsdp/runtime/config/train_config.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mfsdp::runtime {

enum class TokenFileKind {
    gpt2,    ///< llm.c GPT-2, modded-nanogpt: uint16
    llama3,  ///< llm.c Llama-3: uint32
    llmq,    ///< LLMQ BIN.TOK: int32, masks possible
    bytes,   ///< raw text: each byte is its id, then one end-of-document id
};

[[nodiscard]] std::string_view name(TokenFileKind kind);

inline constexpr std::int64_t kEndOfDocument = 256;  ///< follows each file of raw bytes
inline constexpr std::int64_t kByteTokenizerVocabulary = 257;

/// A token file that passed the checks of its header and size. It keeps no open file: a data set may have more files
/// than a process may open.
struct TokenFile {
    std::string path;
    TokenFileKind kind = TokenFileKind::bytes;
    std::int64_t bytes = 0;         ///< file size
    std::int64_t tokens = 0;        ///< n, including the end-of-document id of raw text
    std::int64_t header_bytes = 0;  ///< where the ids begin
    std::int64_t token_bytes = 0;   ///< width of an id
    bool has_masks = false;
};

/// Recognises a file and checks header and size; ids are checked when they are read.
///
/// format      `tokens` finds the kind by its magic, `bytes` takes the file as raw text
/// vocab_size  ids must lie in [0, vocab_size); at most 2^31, else InternalError
/// A broken rule is a DataError, raw bytes with vocab_size < 257 a ConfigError. Source: formats.md section 1.1.
[[nodiscard]] TokenFile inspect_token_file(const base::FileDescriptor& file, DataFormat format,
                                           std::int64_t vocab_size);

/// Reads tokens [begin, begin + out.size()) of one file and checks every id against vocab_size. Allocates nothing.
void read_tokens(const base::FileDescriptor& file, const TokenFile& layout, std::int64_t vocab_size, std::int64_t begin,
                 std::span<std::int32_t> out);

/// Reads mask bits [begin, begin + out.size()) of one file as 0 or 1; all 1 if the file has no masks.
void read_masks(const base::FileDescriptor& file, const TokenFile& layout, std::int64_t begin,
                std::span<std::uint8_t> out);

}  // namespace mfsdp::runtime
