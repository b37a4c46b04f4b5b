#pragma once

#include "mfsdp/runtime/data/token_writer.h"
#include "mfsdp/runtime/data/tokenizer.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::runtime {

/// What becomes of text that is not UTF-8 where the tokenizer needs it.
enum class IllFormedText {
    refuse,   ///< a DataError with file and offset
    replace,  ///< U+FFFD for each maximal ill-formed part, as decoders of text do
};

struct TokenizeOptions {
    std::vector<std::string> patterns;  ///< text files, in the order of file_patterns.h
    TokenSetWriter::Options output;     ///< vocab_size is the tokenizer's
    std::string separator;  ///< cuts a file into documents and is no part of them; empty: a file is a document
    IllFormedText ill_formed = IllFormedText::refuse;
};

struct TokenizeReport {
    std::int64_t text_files = 0;
    std::int64_t text_bytes = 0;
    std::int64_t documents = 0;
    std::int64_t empty_documents = 0;  ///< left out
    std::int64_t replaced_parts = 0;   ///< U+FFFD written
    std::int64_t tokens = 0;           ///< the ends of documents included
    std::int64_t token_files = 0;
};

/// Turns text files into one set of token files: the ids of each document, then the id that ends it.
///
/// Memory does not grow with the files: text is read in pieces, which changes no id. A word longer than
/// kMaxWordBytes is a DataError with its place; so is text without any document. Files and folders of the output are as
/// TokenSetWriter has them; a tokenizer with more ids than the kind holds is a ConfigError.
[[nodiscard]] TokenizeReport tokenize_files(const TokenizeOptions& options, Tokenizer& tokenizer);

inline constexpr std::int64_t kMaxWordBytes = std::int64_t{16} << 20;  ///< merging one takes 40 times that in memory

}  // namespace mfsdp::runtime
