#include "mfsdp/runtime/data/token_stream.h"

#include "mfsdp/base/crc32c.h"
#include "mfsdp/base/error.h"
#include "mfsdp/base/hash64.h"
#include "mfsdp/runtime/data/file_patterns.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <mutex>
#include <utility>

#include <nlohmann/json.hpp>

namespace mfsdp::runtime {

// A bounded set of open files: a corpus may have more files than a process may open, and opening one per sample would
// be a metadata request each on a parallel file system.
class TokenStream::OpenFiles {
  public:
    using Shared = std::shared_ptr<const base::FileDescriptor>;

    // Shared, because another thread may still read from a file that is being replaced here.
    Shared get(const TokenFile& file, std::size_t index) {
        const std::lock_guard lock(mutex_);
        Slot& slot = slots_[index % slots_.size()];
        if (!slot.file || slot.index != index) {
            slot = {index,
                    std::make_shared<const base::FileDescriptor>(file.path, base::FileMode::read, base::FileUse::data)};
        }
        return slot.file;
    }

  private:
    struct Slot {
        std::size_t index = 0;
        Shared file;
    };
    std::mutex mutex_;
    std::array<Slot, 128> slots_;
};

TokenStream::TokenStream(const std::vector<std::string>& patterns, DataFormat format, std::int64_t vocab_size)
    : vocab_size_(vocab_size), begins_{0}, open_files_(std::make_unique<OpenFiles>()) {
    for (const std::string& path : expand_file_patterns(patterns)) {
        const base::FileDescriptor file(path, base::FileMode::read, base::FileUse::data);
        files_.push_back(inspect_token_file(file, format, vocab_size));
        begins_.push_back(begins_.back() + files_.back().tokens);
        has_masks_ = has_masks_ || files_.back().has_masks;
    }
}

TokenStream::~TokenStream() = default;
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&&) noexcept = default;

// Calls read(file index, position in the file, piece of out) for each file the range touches.
template <typename Element, typename Read>
void TokenStream::for_each_file(std::int64_t begin, std::span<Element> out, const Read& read) const {
    MFSDP_ASSERT(begin >= 0 && begin <= tokens() && static_cast<std::int64_t>(out.size()) <= tokens() - begin,
                 "the range lies inside the stream");
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), begin);
    auto index = static_cast<std::size_t>(after - begins_.begin()) - 1;
    while (!out.empty()) {
        const auto rest = static_cast<std::size_t>(begins_[index + 1] - begin);
        const std::size_t count = std::min(rest, out.size());
        read(index, begin - begins_[index], out.first(count));
        out = out.subspan(count);
        begin += static_cast<std::int64_t>(count);
        ++index;
    }
}

void TokenStream::read(std::int64_t begin, std::span<std::int32_t> out) const {
    for_each_file(begin, out, [&](std::size_t index, std::int64_t position, std::span<std::int32_t> piece) {
        const TokenFile& layout = files_[index];
        read_tokens(*open_files_->get(layout, index), layout, vocab_size_, position, piece);
    });
}

void TokenStream::read_masks(std::int64_t begin, std::span<std::uint8_t> out) const {
    for_each_file(begin, out, [&](std::size_t index, std::int64_t position, std::span<std::uint8_t> piece) {
        const TokenFile& layout = files_[index];
        runtime::read_masks(*open_files_->get(layout, index), layout, position, piece);
    });
}

std::uint64_t TokenStream::fingerprint() const {
    constexpr std::int64_t kHeadBytes = 65536;
    nlohmann::json list = nlohmann::json::array();
    std::vector<std::byte> head(kHeadBytes);
    for (std::size_t index = 0; index < files_.size(); ++index) {
        const TokenFile& file = files_[index];
        const auto part = std::span(head).first(static_cast<std::size_t>(std::min(file.bytes, kHeadBytes)));
        open_files_->get(file, index)->read_exact(part, 0);
        list.push_back({{"name", std::filesystem::path(file.path).filename().string()},
                        {"bytes", file.bytes},
                        {"tokens", file.tokens},
                        {"crc32c", base::crc32c_text(base::crc32c(part))}});
    }
    // Canonical: keys sorted, no spaces. A file name that is not UTF-8 must not stop the run.
    return base::hash64(list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace mfsdp::runtime
