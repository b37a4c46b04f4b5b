#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

namespace mfsdp::model {

/// A JSON text without anything that two readers could understand differently: no key twice in an object, no zero byte
/// in the middle, valid UTF-8.
///
/// fail  called with what is wrong, e.g. "has the key 'a' twice"; must throw
[[nodiscard]] nlohmann::json parse_strict_json(const std::string& text,
                                               const std::function<void(const std::string&)>& fail);

}  // namespace mfsdp::model
