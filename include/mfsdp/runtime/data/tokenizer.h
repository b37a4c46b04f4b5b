#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp::runtime {

/// Turns text into ids and back. One thread uses one tokenizer: it may remember what it has met.
class Tokenizer {
  public:
    Tokenizer() = default;
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;
    virtual ~Tokenizer() = default;

    /// Ids lie in [0, vocab_size()).
    [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
    /// The id that ends a document; encode never gives it.
    [[nodiscard]] virtual std::int32_t end_of_document() const = 0;
    /// Whether the text must be UTF-8; encode takes other bytes too and loses none, but the result is of no published
    /// form.
    [[nodiscard]] virtual bool needs_utf8() const = 0;

    /// Appends the ids of as much of `text` as no later text can change, and returns how many bytes that is.
    ///
    /// is_last  nothing follows: all of `text` is encoded
    [[nodiscard]] virtual std::size_t encode_some(std::string_view text, bool is_last,
                                                  std::vector<std::int32_t>& ids) = 0;
    /// The ids of a whole text; decode(encode(text)) == text for any bytes.
    [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text);
    /// The bytes that ids stand for; an id outside the vocabulary is an InternalError. A piece of a text may end inside
    /// a UTF-8 sequence. The end of a document is no text: the byte tokenizer leaves it out, GPT-2's has a name for it.
    [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
};

/// Each byte is its id, 256 ends a document: the ids of `data.format = "bytes"`.
[[nodiscard]] std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// GPT-2's byte-level BPE from `vocab.json` and `merges.txt` in `directory`; ids equal those of the reference encoder.
///
/// end_of_document  the name of the id in vocab.json that ends a document
/// A text's own "<|endoftext|>" is ordinary text. A file that cannot be read, or that breaks a rule (every byte has an
/// id, ids are given once, each merge makes a known token), is a DataError with its line or token; a program built
/// without ICU throws a ConfigError. Source: Radford et al. 2019, section 2.2, and its published encoder.
[[nodiscard]] std::unique_ptr<Tokenizer> make_gpt2_tokenizer(const std::string& directory,
                                                             const std::string& end_of_document = "<|endoftext|>");

/// Whether make_gpt2_tokenizer works in this build.
[[nodiscard]] bool gpt2_tokenizer_available();

/// `bytes`, or the directory of a GPT-2 tokenizer.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_directory,
                                                        const std::string& end_of_document = "<|endoftext|>");

}  // namespace mfsdp::runtime
