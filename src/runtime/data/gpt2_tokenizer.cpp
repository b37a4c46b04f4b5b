#include "mfsdp/base/error.h"
#include "mfsdp/runtime/data/tokenizer.h"

#include "runtime/data/byte_pairs.h"
#include "runtime/data/characters.h"
#include "runtime/data/gpt2_vocabulary.h"
#include "runtime/data/gpt2_words.h"
#include "runtime/data/word_cache.h"

#include <utility>

namespace mfsdp::runtime {
namespace {

class Gpt2Tokenizer final : public Tokenizer {
  public:
    explicit Gpt2Tokenizer(Gpt2Vocabulary vocabulary)
        : vocabulary_(std::move(vocabulary)), pairs_(vocabulary_.byte_ids, vocabulary_.merges) {}

    [[nodiscard]] std::int64_t vocab_size() const override {
        return static_cast<std::int64_t>(vocabulary_.tokens.size());
    }
    [[nodiscard]] std::int32_t end_of_document() const override { return vocabulary_.end_of_document; }
    [[nodiscard]] bool needs_utf8() const override { return true; }

    [[nodiscard]] std::size_t encode_some(std::string_view text, bool is_last,
                                          std::vector<std::int32_t>& ids) override {
        std::size_t done = 0;
        while (done < text.size()) {
            const std::size_t bytes = first_word(characters_, text.substr(done), is_last);
            if (bytes == 0) break;
            encode_word(text.substr(done, bytes), ids);
            done += bytes;
        }
        return done;
    }

    [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
        std::string text;
        for (const std::int32_t id : ids) {
            MFSDP_ASSERT(id >= 0 && id < vocab_size(), "ids are those of this tokenizer");
            text += vocabulary_.tokens[static_cast<std::size_t>(id)];
        }
        return text;
    }

  private:
    void encode_word(std::string_view word, std::vector<std::int32_t>& ids) {
        const bool is_short = word.size() <= WordCache::kMaxWordBytes;
        if (is_short) {
            if (const auto known = cache_.find(word); !known.empty()) {
                ids.insert(ids.end(), known.begin(), known.end());
                return;
            }
        }
        const std::size_t begin = ids.size();
        pairs_.encode(word, ids);
        if (is_short) cache_.insert(word, std::span(ids).subspan(begin));
    }

    Gpt2Vocabulary vocabulary_;
    CharacterReader characters_;
    BytePairs pairs_;
    WordCache cache_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_gpt2_tokenizer(const std::string& directory, const std::string& end_of_document) {
    return std::make_unique<Gpt2Tokenizer>(read_gpt2_vocabulary(directory, end_of_document));
}

bool gpt2_tokenizer_available() { return has_unicode(); }

}  // namespace mfsdp::runtime
