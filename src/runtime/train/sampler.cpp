#include "mfsdp/runtime/train/sampler.h"

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/data/token_file.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <span>
#include <sstream>

namespace mfsdp::runtime {

namespace {

std::int32_t parse_id(const std::string& word, std::int64_t vocab_size) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc{} || end != word.data() + word.size() || id < 0 || id >= vocab_size) {
        throw ConfigError("config: train.sample_prompt: '" + word + "' is no id of the model, which has " +
                          std::to_string(vocab_size) + " ids; data.format = tokens takes ids like \"12 7 9\"");
    }
    return id;
}

/// Length of the well-formed UTF-8 sequence at the start of `bytes`, 0 if there is none. Source: Unicode 15, table 3-7.
std::size_t utf8_length(std::string_view bytes) {
    const auto at = [&](std::size_t i) {
        return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : static_cast<unsigned char>(0);
    };
    const auto continues = [&](std::size_t i, unsigned char low = 0x80, unsigned char high = 0xBF) {
        return at(i) >= low && at(i) <= high;
    };
    const unsigned char first = at(0);
    if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
    if (first >= 0xE0 && first <= 0xEF) {
        const unsigned char low = first == 0xE0 ? 0xA0 : 0x80, high = first == 0xED ? 0x9F : 0xBF;
        return continues(1, low, high) && continues(2) ? 3 : 0;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        const unsigned char low = first == 0xF0 ? 0x90 : 0x80, high = first == 0xF4 ? 0x8F : 0xBF;
        return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
    }
    return 0;
}

}  // namespace

std::string printable(const std::string& bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const auto byte = static_cast<unsigned char>(bytes[i]);
        if (byte == '\n') {
            out += "\\n";
        } else if (byte == '\t') {
            out += "\\t";
        } else if (byte >= 0x20 && byte < 0x7F) {
            out += bytes[i];
        } else if (const std::size_t length = utf8_length(std::string_view(bytes).substr(i)); length > 0) {
            out.append(bytes, i, length);
            i += length - 1;
        } else {
            out += "\\x";
            out += kDigits[byte >> 4U];
            out += kDigits[byte & 15U];
        }
    }
    return out;
}

Sampler::Sampler(const TrainConfig& config, std::int32_t first_token)
    : format_(config.data.format), new_tokens_(config.train.sample_tokens), longest_(config.train.seq_len) {
    const std::string& prompt = config.train.sample_prompt;
    if (format_ == DataFormat::bytes) {
        for (const char c : prompt) prompt_.push_back(static_cast<unsigned char>(c));
        if (prompt_.empty()) prompt_.push_back(static_cast<std::int32_t>(kEndOfDocument));
        return;
    }
    std::istringstream words(prompt);
    for (std::string word; words >> word;) prompt_.push_back(parse_id(word, config.model.vocab_size));
    if (prompt_.empty()) prompt_.push_back(first_token);
}

std::string Sampler::run(Engine& engine, int rank) const {
    std::vector<std::int32_t> tokens = prompt_;
    for (std::int64_t i = 0; i < new_tokens_; ++i) {
        const std::span<const std::int32_t> all(tokens);
        const std::size_t length = std::min(all.size(), static_cast<std::size_t>(longest_));
        tokens.push_back(engine.next_token(all.last(length)));
    }
    return rank == 0 ? text(tokens) : std::string();
}

std::string Sampler::text(const std::vector<std::int32_t>& tokens) const {
    std::string result;
    for (const std::int32_t token : tokens) {
        if (format_ == DataFormat::tokens) {
            if (!result.empty()) result += ' ';
            result += std::to_string(token);
        } else if (token < kEndOfDocument) {
            result += static_cast<char>(token);
        } else if (token > kEndOfDocument) {
            result += "<" + std::to_string(token) + ">";  // an id that the byte tokenizer does not have
        } else if (!result.empty()) {
            result += '\n';  // a new document begins
        }
    }
    return printable(result);
}

}  // namespace mfsdp::runtime
