#pragma once

#include "mfsdp/runtime/config/schema.h"

#include "runtime/config/json_value.h"

#include <string>
#include <string_view>
#include <vector>

namespace mfsdp::runtime {

/// Checks one value against type, names and limits of its row; appends what is wrong with it.
///
/// `value` is brought to the form that the document keeps: a whole number of a number key becomes a number, the first
/// off value stands for all. Returns whether it is valid.
bool check_value(const KeyRow& row, std::string_view path, JsonValue& value, std::vector<std::string>& errors);

/// The value of a default or off value of the table.
[[nodiscard]] JsonValue table_value(std::string_view json);

}  // namespace mfsdp::runtime
