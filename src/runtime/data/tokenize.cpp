#include "mfsdp/runtime/data/tokenize.h"

#include "mfsdp/base/counted.h"
#include "mfsdp/base/error.h"
#include "mfsdp/runtime/data/file_patterns.h"

#include "runtime/data/characters.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string_view>

namespace mfsdp::runtime {
namespace {

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;
constexpr std::size_t kFlushedIds = std::size_t{1} << 18;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Reads a text file block by block; with check_utf8 its pieces are well-formed.
class TextSource {
  public:
    TextSource(const std::string& path, bool check_utf8, IllFormedText ill_formed)
        : file_(path, base::FileMode::read, base::FileUse::data), check_utf8_(check_utf8), ill_formed_(ill_formed) {
        if (!file_.is_regular_file()) base::raise_file_error(file_.use(), path, "not a regular file");
        bytes_ = file_.size();
    }

    [[nodiscard]] std::int64_t bytes() const { return bytes_; }
    [[nodiscard]] std::int64_t offset() const { return offset_; }
    [[nodiscard]] std::int64_t replaced_parts() const { return replaced_parts_; }

    /// Appends the next block to `text`; false after the last.
    bool read(std::string& text) {
        const std::int64_t count = std::min(kBlockBytes, bytes_ - offset_);
        std::string block = std::move(cut_off_);
        cut_off_.clear();
        const std::int64_t block_offset = offset_ - static_cast<std::int64_t>(block.size());
        const std::size_t kept = block.size();
        block.resize(kept + static_cast<std::size_t>(count));
        file_.read_exact(std::as_writable_bytes(std::span(block)).subspan(kept), offset_);
        offset_ += count;
        if (check_utf8_) {
            append_checked(block, block_offset, text);
        } else {
            text += block;
        }
        return offset_ < bytes_;
    }

  private:
    void append_checked(std::string_view block, std::int64_t block_offset, std::string& text) {
        const std::size_t all = block.size();
        while (true) {
            const Utf8Fault fault = find_utf8_fault(block, offset_ == bytes_);
            text += block.substr(0, fault.at);
            block.remove_prefix(fault.at);
            if (fault.bytes == 0) break;
            if (ill_formed_ == IllFormedText::refuse) {
                refuse(block_offset + static_cast<std::int64_t>(all - block.size()),
                       static_cast<unsigned char>(block.front()));
            }
            text += kReplacement;
            ++replaced_parts_;
            block.remove_prefix(fault.bytes);
        }
        cut_off_ = block;
    }

    [[noreturn]] void refuse(std::int64_t offset, unsigned byte) const {
        char hex[8] = {};
        std::snprintf(hex, sizeof(hex), "0x%02x", byte);
        base::raise_file_error(file_.use(), file_.path(),
                               "not UTF-8 from byte " + std::to_string(offset) + " (" + hex +
                                   ") on; --ill-formed=replace takes U+FFFD for such parts");
    }

    base::FileDescriptor file_;
    bool check_utf8_;
    IllFormedText ill_formed_;
    std::int64_t bytes_ = 0;
    std::int64_t offset_ = 0;
    std::int64_t replaced_parts_ = 0;
    std::string cut_off_;  // the beginning of a character that the block's end cut
};

class Documents {
  public:
    Documents(const TokenizeOptions& options, Tokenizer& tokenizer, TokenizeReport& report)
        : separator_(options.separator),
          tokenizer_(tokenizer),
          writer_(output_of(options, tokenizer)),
          report_(report) {}

    void add_file(TextSource& source, const std::string& path) {
        std::string text;  // of the present document, not encoded yet
        bool more = true;
        while (more) {
            more = source.read(text);
            const std::size_t done = encode(text, !more);
            text.erase(0, done);
            if (static_cast<std::int64_t>(text.size()) > kMaxWordBytes + static_cast<std::int64_t>(separator_.size())) {
                base::raise_file_error(base::FileUse::data, path,
                                       "more than " + std::to_string(kMaxWordBytes) +
                                           " bytes without a border between words before byte " +
                                           std::to_string(source.offset()) + "; is this text?");
            }
        }
    }

    void finish() {
        flush();
        if (writer_.tokens() == 0) {
            throw DataError("data: no text to tokenize in " + base::counted(report_.text_files, "file"));
        }
        writer_.finish();
        report_.tokens = writer_.tokens();
        report_.token_files = writer_.files();
    }

  private:
    static TokenSetWriter::Options output_of(const TokenizeOptions& options, const Tokenizer& tokenizer) {
        TokenSetWriter::Options output = options.output;
        output.vocab_size = tokenizer.vocab_size();
        const std::int64_t limit = id_limit(output.kind);
        if (output.vocab_size > limit) {
            throw ConfigError("tokenize: the tokenizer has " + std::to_string(output.vocab_size) +
                              " ids, files of kind " + std::string(name(output.kind)) + " hold " +
                              std::to_string(limit) + "; --kind=llama3 holds more");
        }
        return output;
    }

    /// Encodes what can be, up to `text`'s last border of documents and beyond it; returns how many bytes that is.
    std::size_t encode(std::string_view text, bool is_last) {
        const std::size_t all = text.size();
        while (true) {
            const std::size_t border = separator_.empty() ? std::string_view::npos : text.find(separator_);
            if (border == std::string_view::npos) break;
            encode_document_part(text.substr(0, border), true);
            text.remove_prefix(border + separator_.size());
        }
        // A separator may have begun: its bytes are not encoded before that is known.
        const std::size_t held = is_last || separator_.empty() ? 0 : std::min(text.size(), separator_.size() - 1);
        text.remove_prefix(encode_document_part(text.substr(0, text.size() - held), is_last));
        return all - text.size();
    }

    std::size_t encode_document_part(std::string_view part, bool ends) {
        const std::size_t done = tokenizer_.encode_some(part, ends, ids_);
        encoded_bytes_ += static_cast<std::int64_t>(done);
        if (ends) {
            if (encoded_bytes_ > 0) ids_.push_back(tokenizer_.end_of_document());
            ++(encoded_bytes_ > 0 ? report_.documents : report_.empty_documents);
            encoded_bytes_ = 0;
        }
        if (ids_.size() >= kFlushedIds) flush();
        return done;
    }

    void flush() {
        writer_.write(ids_);
        ids_.clear();
    }

    std::string separator_;
    Tokenizer& tokenizer_;
    TokenSetWriter writer_;
    TokenizeReport& report_;
    std::int64_t encoded_bytes_ = 0;  // of the present document
    std::vector<std::int32_t> ids_;
};

}  // namespace

TokenizeReport tokenize_files(const TokenizeOptions& options, Tokenizer& tokenizer) {
    TokenizeReport report;
    const std::vector<std::string> paths = expand_file_patterns(options.patterns);
    Documents documents(options, tokenizer, report);
    for (const std::string& path : paths) {
        TextSource source(path, tokenizer.needs_utf8(), options.ill_formed);
        ++report.text_files;
        documents.add_file(source, path);
        report.text_bytes += source.bytes();
        report.replaced_parts += source.replaced_parts();
    }
    documents.finish();
    return report;
}

}  // namespace mfsdp::runtime
