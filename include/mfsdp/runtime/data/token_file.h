#pragma once

#include "mfsdp/base/file_descriptor.h"
#include "mfsdp/runtime/config/train_config.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
    std::int64_t vocabulary = 0;  ///< ids that the header was written for; 0 if it names none
};

/// Header and size of a file, with every rule they break.
struct TokenFileCheck {
    TokenFile layout;                   ///< as far as the header can be understood
    std::vector<std::string> problems;  ///< messages without the file's name; none: the file may be read
    std::int64_t whole_tokens = 0;      ///< ids that lie in the file in spite of problems
};

/// Recognises a file and checks header and size; ids are checked when they are read.
///
/// format      `tokens` finds the kind by its magic, `bytes` takes the file as raw text
/// vocab_size  of the model, in [1, 2^31], else InternalError
/// Raw bytes with vocab_size < 257 are a ConfigError. Source: docs/data.md, token files.
[[nodiscard]] TokenFileCheck check_token_file(const base::FileDescriptor& file, DataFormat format,
                                              std::int64_t vocab_size);

/// check_token_file; a broken rule is a DataError with the first of the messages.
[[nodiscard]] TokenFile inspect_token_file(const base::FileDescriptor& file, DataFormat format,
                                           std::int64_t vocab_size);

/// Reads tokens as they are stored, without a check of their ids; see stored_id. Allocates nothing.
void read_stored_tokens(const base::FileDescriptor& file, const TokenFile& layout, std::int64_t begin,
                        std::span<std::int32_t> out);
/// The number that a file of this kind means by 32 stored bits: uint32 ids have no negative numbers.
[[nodiscard]] std::int64_t stored_id(TokenFileKind kind, std::int32_t bits);

/// Reads tokens [begin, begin + out.size()) of one file and checks every id against vocab_size. Allocates nothing.
void read_tokens(const base::FileDescriptor& file, const TokenFile& layout, std::int64_t vocab_size, std::int64_t begin,
                 std::span<std::int32_t> out);

/// Reads mask bits [begin, begin + out.size()) of one file as 0 or 1; all 1 if the file has no masks.
void read_masks(const base::FileDescriptor& file, const TokenFile& layout, std::int64_t begin,
                std::span<std::uint8_t> out);

}  // namespace mfsdp::runtime
