#pragma once

#include <string>

namespace mfsdp::runtime {

// Documents that are generated from the schema table; `scripts/generate_config_documents.sh` writes them into the tree
// and a test compares.

/// The tables of docs/config.md between its two `generated` comments: the keys, section by section, then those of
/// later versions.
[[nodiscard]] std::string key_tables();

/// configs/schema.json: a JSON Schema (draft 7) for editors. It says what one key may hold and which keys a model
/// family, optimizer or strategy has; rules that need two values are the program's alone.
[[nodiscard]] std::string editor_schema();

}  // namespace mfsdp::runtime
