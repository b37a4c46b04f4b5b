#pragma once

#include "mfsdp/runtime/config/train_config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::runtime {

class Tokenizer;

struct InspectOptions {
    std::vector<std::string> patterns;
    DataFormat format = DataFormat::tokens;
    std::int64_t seq_len = 0;              ///< T of the samples to count; 0: not asked for
    std::int64_t first_ids = 16;           ///< shown of each file
    const Tokenizer* tokenizer = nullptr;  ///< decodes the first ids and tells the id that ends a document
};

/// What token files hold, as text for people: of each file kind, bytes, tokens, vocabulary, targets that count,
/// documents, first ids and their text; then tokens and samples of all.
///
/// Documents are counted, which reads the whole file, only where a tokenizer tells the id that ends one; raw bytes are
/// one document each. Header and size are checked: DataError. Source: docs/data.md, token files.
[[nodiscard]] std::string inspect_tokens(const InspectOptions& options);

}  // namespace mfsdp::runtime
