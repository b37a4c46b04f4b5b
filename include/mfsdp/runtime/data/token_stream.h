#pragma once

#include "mfsdp/runtime/data/token_file.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mfsdp::runtime {

/// The files of a data set as one stream of tokens t[0..n) in list order. How a corpus is cut into files changes
/// nothing. Reads may come from several threads; move-only. Source: docs/data.md, docs/determinism.md.
class TokenStream {
  public:
    /// Expands the patterns and checks header and size of every file.
    TokenStream(const std::vector<std::string>& patterns, DataFormat format, std::int64_t vocab_size);
    ~TokenStream();
    TokenStream(TokenStream&&) noexcept;
    TokenStream& operator=(TokenStream&&) noexcept;

    [[nodiscard]] std::int64_t tokens() const noexcept { return begins_.back(); }
    [[nodiscard]] bool has_masks() const noexcept { return has_masks_; }
    [[nodiscard]] const std::vector<TokenFile>& files() const noexcept { return files_; }

    /// Reads t[begin, begin + out.size()); an id outside the vocabulary is a DataError with its place in its file.
    void read(std::int64_t begin, std::span<std::int32_t> out) const;
    /// Reads the mask bits of the same positions as 0 or 1; positions of a file without masks are 1.
    void read_masks(std::int64_t begin, std::span<std::uint8_t> out) const;

    /// hash64 of the list of {base name, bytes, n, crc32c of the first 64 KiB}: tells whether two ranks
    /// read the same data. Reads the head of every file.
    [[nodiscard]] std::uint64_t fingerprint() const;

  private:
    class OpenFiles;

    template <typename Element, typename Read>
    void for_each_file(std::int64_t begin, std::span<Element> out, const Read& read) const;

    std::int64_t vocab_size_;
    bool has_masks_ = false;
    std::vector<TokenFile> files_;
    std::vector<std::int64_t> begins_;  ///< first stream position of each file, then n
    std::unique_ptr<OpenFiles> open_files_;
};

}  // namespace mfsdp::runtime
