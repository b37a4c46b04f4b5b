#pragma once

#include "mfsdp/runtime/config/train_config.h"

#include "runtime/config/document.h"

#include <string>

namespace mfsdp::runtime {

/// Replaces each `null` that the file alone decides; `config_name` is the file's name without folder and ending.
void resolve_nulls(Document& document, const std::string& config_name);

/// Fills the typed form from a document without errors whose nulls are resolved.
[[nodiscard]] TrainConfig bind_document(const Document& document);

}  // namespace mfsdp::runtime
