#include "mfsdp/runtime/data/tokenizer.h"

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/data/token_file.h"

namespace mfsdp::runtime {
namespace {

class ByteTokenizer final : public Tokenizer {
  public:
    [[nodiscard]] std::int64_t vocab_size() const override { return kByteTokenizerVocabulary; }
    [[nodiscard]] std::int32_t end_of_document() const override { return static_cast<std::int32_t>(kEndOfDocument); }
    [[nodiscard]] bool needs_utf8() const override { return false; }

    [[nodiscard]] std::size_t encode_some(std::string_view text, bool /*is_last*/,
                                          std::vector<std::int32_t>& ids) override {
        for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
        return text.size();
    }

    [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
        std::string text;
        for (const std::int32_t id : ids) {
            MFSDP_ASSERT(id >= 0 && id < kByteTokenizerVocabulary, "ids are those of this tokenizer");
            if (id != kEndOfDocument) text += static_cast<char>(id);
        }
        return text;
    }
};

}  // namespace

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) {
    std::vector<std::int32_t> ids;
    const std::size_t encoded = encode_some(text, true, ids);
    MFSDP_ASSERT(encoded == text.size(), "the end of a text leaves nothing open");
    return ids;
}

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name_or_directory, const std::string& end_of_document) {
    if (name_or_directory == "bytes") return make_byte_tokenizer();
    return make_gpt2_tokenizer(name_or_directory, end_of_document);
}

}  // namespace mfsdp::runtime
