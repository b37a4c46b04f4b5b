#pragma once

#include "runtime/config/json_value.h"

#include <span>
#include <string>
#include <vector>

namespace mfsdp::runtime {

/// Applies `a.b=c` in order: c is read as JSON, else as a string; the value at a.b is replaced whole.
void apply_overrides(JsonValue& root, std::span<const std::string> overrides, std::vector<std::string>& errors);

}  // namespace mfsdp::runtime
