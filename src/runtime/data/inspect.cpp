#include "mfsdp/runtime/data/inspect.h"

#include "mfsdp/base/counted.h"
#include "mfsdp/base/error.h"
#include "mfsdp/runtime/data/file_patterns.h"
#include "mfsdp/runtime/data/token_file.h"
#include "mfsdp/runtime/data/tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>

#include <nlohmann/json.hpp>

namespace mfsdp::runtime {
namespace {

constexpr std::int64_t kAnyId = std::int64_t{1} << 31;
constexpr std::int64_t kBlock = std::int64_t{1} << 20;

std::string line(const std::string& label, const std::string& value) {
    std::string text = "  " + label;
    text.append(14 - label.size(), ' ');
    return text + value + '\n';
}

/// One file, opened.
class InspectedFile {
  public:
    InspectedFile(const std::string& path, const InspectOptions& options)
        : options_(options),
          file_(path, base::FileMode::read, base::FileUse::data),
          layout_(inspect_token_file(file_, options.format, kAnyId)) {}

    [[nodiscard]] const TokenFile& layout() const { return layout_; }

    [[nodiscard]] std::string describe() const {
        std::string text = layout_.path + '\n';
        text += line("kind", std::string(name(layout_.kind)));
        text += line("bytes", std::to_string(layout_.bytes));
        text += line("tokens", std::to_string(layout_.tokens));
        text += line("vocabulary", vocabulary());
        text += line("masks", layout_.has_masks ? std::to_string(count_mask_bits()) + " of " +
                                                      std::to_string(layout_.tokens) + " bits are set"
                                                : "none");
        text += line("documents", documents());
        if (options_.first_ids > 0) text += first_ids();
        return text;
    }

  private:
    [[nodiscard]] std::string vocabulary() const {
        if (layout_.kind == TokenFileKind::bytes) return std::to_string(kByteTokenizerVocabulary) + " ids";
        return layout_.vocabulary > 0 ? std::to_string(layout_.vocabulary) + " ids" : "not named in the header";
    }

    template <typename Element, typename Read, typename Count>
    [[nodiscard]] std::int64_t sum_over_blocks(const Read& read, const Count& count) const {
        std::vector<Element> block;
        std::int64_t sum = 0;
        for (std::int64_t begin = 0; begin < layout_.tokens; begin += kBlock) {
            block.resize(static_cast<std::size_t>(std::min(kBlock, layout_.tokens - begin)));
            read(begin, std::span(block));
            sum += count(block);
        }
        return sum;
    }

    [[nodiscard]] std::int64_t count_mask_bits() const {
        return sum_over_blocks<std::uint8_t>(
            [&](std::int64_t begin, std::span<std::uint8_t> bits) { read_masks(file_, layout_, begin, bits); },
            [](const auto& bits) { return std::accumulate(bits.begin(), bits.end(), std::int64_t{0}); });
    }

    [[nodiscard]] std::string documents() const {
        if (layout_.kind == TokenFileKind::bytes) return "1";
        if (options_.tokenizer == nullptr) return "not known without the tokenizer";
        const std::int32_t end = options_.tokenizer->end_of_document();
        const std::int64_t ends = sum_over_blocks<std::int32_t>(
            [&](std::int64_t begin, std::span<std::int32_t> ids) { read_tokens(file_, layout_, kAnyId, begin, ids); },
            [&](const auto& ids) { return std::int64_t{std::count(ids.begin(), ids.end(), end)}; });
        return std::to_string(ends) + " end here, each with id " + std::to_string(end);
    }

    [[nodiscard]] std::string first_ids() const {
        std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min(options_.first_ids, layout_.tokens)));
        read_tokens(file_, layout_, kAnyId, 0, ids);
        std::string numbers;
        for (const std::int32_t id : ids) numbers += (numbers.empty() ? "" : " ") + std::to_string(id);
        std::string text = line("first ids", numbers);
        if (options_.tokenizer == nullptr) return text;
        const std::int64_t limit = options_.tokenizer->vocab_size();
        const auto foreign = std::find_if(ids.begin(), ids.end(), [&](std::int32_t id) { return id >= limit; });
        if (foreign != ids.end()) {
            return text + line("text", "id " + std::to_string(*foreign) + " is none of the tokenizer's " +
                                           std::to_string(limit));
        }
        // As a JSON string: control characters are escaped, and a character that the last id cuts off is replaced.
        const nlohmann::json decoded = options_.tokenizer->decode(ids);
        return text + line("text", decoded.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }

    const InspectOptions& options_;
    base::FileDescriptor file_;
    TokenFile layout_;
};

std::string total_line(std::size_t files, std::int64_t tokens, std::int64_t seq_len) {
    std::string text = "all: " + base::counted(files, "file") + ", " + base::counted(tokens, "token");
    if (seq_len > 0) {
        const std::int64_t samples = (tokens - 1) / seq_len;
        text += ", " + std::to_string(samples) + " samples of " + std::to_string(seq_len) + " tokens, " +
                std::to_string(tokens - 1 - samples * seq_len) + " tokens unused";
    }
    return text + '\n';
}

}  // namespace

std::string inspect_tokens(const InspectOptions& options) {
    std::string text;
    std::int64_t tokens = 0;
    const std::vector<std::string> paths = expand_file_patterns(options.patterns);
    for (const std::string& path : paths) {
        const InspectedFile file(path, options);
        text += file.describe();
        tokens += file.layout().tokens;
    }
    return text + total_line(paths.size(), tokens, options.seq_len);
}

}  // namespace mfsdp::runtime
