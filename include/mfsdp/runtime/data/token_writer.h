#pragma once

#include "mfsdp/base/file_descriptor.h"
#include "mfsdp/runtime/data/token_file.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mfsdp::runtime {

/// Ids that a token file of this kind can hold: [0, limit). Raw bytes are no token file: InternalError.
[[nodiscard]] std::int64_t id_limit(TokenFileKind kind);

/// Writes a stream of tokens as the files of one new folder, which appears whole or not at all.
///
/// The files are `tokens_000000.bin`, `tokens_000001.bin`, ..., so that the bytes of their names sort them; each but
/// the last is full. They are written into a folder beside the final one, synced, and the folder is renamed at the end.
/// Source: docs/data.md, token files.
class TokenSetWriter {
  public:
    struct Options {
        std::string directory;  ///< must not exist; else ConfigError
        TokenFileKind kind = TokenFileKind::gpt2;
        std::int64_t vocab_size = 0;           ///< of the tokenizer, in [1, id_limit(kind)]
        std::int64_t max_tokens_per_file = 0;  ///< in [1, 2^31)
    };

    explicit TokenSetWriter(Options options);
    /// Without finish() nothing is left behind.
    ~TokenSetWriter();
    TokenSetWriter(const TokenSetWriter&) = delete;
    TokenSetWriter& operator=(const TokenSetWriter&) = delete;

    /// Appends ids in [0, vocab_size). A full disk is a DataError.
    void write(std::span<const std::int32_t> ids);
    /// Publishes the folder; at least one token must have been written, and nothing else may be called after.
    void finish();

    [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
    [[nodiscard]] std::int64_t files() const noexcept { return files_; }

  private:
    void open_file();
    void close_file();
    void flush();

    Options options_;
    std::string unfinished_;  // the folder being written; empty once it is published
    std::int64_t tokens_ = 0;
    std::int64_t files_ = 0;
    std::optional<base::FileDescriptor> file_;
    std::int64_t file_tokens_ = 0;    // of the open file, those in buffer_ included
    std::vector<std::byte> buffer_;   // ids of the open file that are not in it yet
    std::int64_t buffer_offset_ = 0;  // where they go
};

}  // namespace mfsdp::runtime
