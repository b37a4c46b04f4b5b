#include "mfsdp/runtime/data/token_writer.h"

#include "mfsdp/base/error.h"

#include "runtime/data/token_header.h"

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include <unistd.h>

namespace mfsdp::runtime {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

std::string file_name(std::int64_t number) {
    char text[32] = {};
    std::snprintf(text, sizeof(text), "/tokens_%06lld.bin", static_cast<long long>(number));
    return text;
}

TokenHeader header_for(TokenFileKind kind, std::int64_t tokens, std::int64_t vocab_size) {
    const auto count = static_cast<std::int32_t>(tokens);
    TokenHeader words{};
    switch (kind) {
        case TokenFileKind::gpt2:
            words[0] = kGpt2Magic;
            words[1] = kGpt2Version;
            words[2] = count;
            return words;
        case TokenFileKind::llama3:
            words[0] = kLlama3Magic;
            words[1] = kLlama3Version;
            words[2] = count;
            return words;
        case TokenFileKind::llmq:
            std::memcpy(words.data(), kLlmqMagic.data(), kLlmqMagic.size());
            words[2] = kLlmqVersion;
            words[3] = kLlmqTokenBytes;
            words[4] = count;
            words[5] = static_cast<std::int32_t>(vocab_size);
            return words;
        case TokenFileKind::bytes:
            break;
    }
    raise_internal_error("kind", __FILE__, __LINE__, "raw bytes have no header");
}

}  // namespace

std::int64_t id_limit(TokenFileKind kind) {
    MFSDP_ASSERT(kind != TokenFileKind::bytes, "raw bytes are not written as token files");
    // Ids are int32 in the program, whatever the file could hold.
    return kind == TokenFileKind::gpt2 ? std::int64_t{1} << 16 : std::int64_t{std::numeric_limits<std::int32_t>::max()};
}

TokenSetWriter::TokenSetWriter(Options options) : options_(std::move(options)) {
    MFSDP_ASSERT(options_.vocab_size >= 1 && options_.vocab_size <= id_limit(options_.kind),
                 "the ids fit into the kind");
    MFSDP_ASSERT(
        options_.max_tokens_per_file >= 1 && options_.max_tokens_per_file <= std::numeric_limits<std::int32_t>::max(),
        "a header counts tokens in 31 bits");
    if (options_.directory.empty()) throw ConfigError("tokenize: output: must be the path of a folder to make");
    // A path that ends with a slash would put the unfinished folder inside the final one.
    while (options_.directory.size() > 1 && options_.directory.ends_with('/')) options_.directory.pop_back();
    std::error_code error;
    if (std::filesystem::exists(std::filesystem::symlink_status(options_.directory, error))) {
        throw ConfigError("tokenize: output '" + options_.directory + "' exists already; choose another or remove it");
    }
    error.clear();  // "not there" is reported as an error too
    const std::filesystem::path parent = std::filesystem::path(options_.directory).parent_path();
    if (!parent.empty()) std::filesystem::create_directories(parent, error);
    const std::string unfinished = options_.directory + ".part-" + std::to_string(::getpid());
    if (error || !std::filesystem::create_directory(unfinished, error)) {
        throw ConfigError("tokenize: output '" + options_.directory + "': cannot make a folder beside it: " +
                          (error ? error.message() : "one of the same name exists"));
    }
    unfinished_ = unfinished;
    buffer_.reserve(kBufferBytes + sizeof(std::int32_t));
}

TokenSetWriter::~TokenSetWriter() {
    if (unfinished_.empty()) return;
    file_.reset();
    std::error_code error;
    std::filesystem::remove_all(unfinished_, error);
    if (error) std::fprintf(stderr, "%s: cannot be removed: %s\n", unfinished_.c_str(), error.message().c_str());
}

void TokenSetWriter::open_file() {
    file_.emplace(unfinished_ + file_name(files_++), base::FileMode::create, base::FileUse::data);
    file_tokens_ = 0;
    buffer_offset_ = kTokenHeaderBytes;
}

void TokenSetWriter::close_file() {
    flush();
    const TokenHeader header = header_for(options_.kind, file_tokens_, options_.vocab_size);
    file_->write_exact(std::as_bytes(std::span(header)), 0);
    file_->sync();
    file_->close();
    file_.reset();
}

void TokenSetWriter::flush() {
    file_->write_exact(buffer_, buffer_offset_);
    buffer_offset_ += static_cast<std::int64_t>(buffer_.size());
    buffer_.clear();
}

void TokenSetWriter::write(std::span<const std::int32_t> ids) {
    const std::size_t width = options_.kind == TokenFileKind::gpt2 ? sizeof(std::uint16_t) : sizeof(std::int32_t);
    for (const std::int32_t id : ids) {
        MFSDP_ASSERT(id >= 0 && id < options_.vocab_size, "ids come from the tokenizer");
        if (!file_) open_file();
        const auto* const bytes = reinterpret_cast<const std::byte*>(&id);
        buffer_.insert(buffer_.end(), bytes, bytes + width);
        if (buffer_.size() >= kBufferBytes) flush();
        if (++file_tokens_ == options_.max_tokens_per_file) close_file();
    }
    tokens_ += static_cast<std::int64_t>(ids.size());
}

void TokenSetWriter::finish() {
    MFSDP_ASSERT(tokens_ > 0, "an empty set of tokens is an error of its text");
    if (file_) close_file();
    base::FileDescriptor(unfinished_, base::FileMode::read, base::FileUse::data).sync();
    base::rename_durably(unfinished_, options_.directory, base::FileUse::data);
    unfinished_.clear();
}

}  // namespace mfsdp::runtime
