#include "json_line.h"

#include "mfsdp/base/json_number.h"

#include <nlohmann/json.hpp>

namespace mfsdp::runtime {
namespace {

// A path that is not UTF-8 must not stop a run.
std::string quoted(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

JsonLine& JsonLine::append(std::string_view key, std::string_view json) {
    if (!members_.empty()) members_ += ',';
    members_ += quoted(key);
    members_ += ':';
    members_ += json;
    return *this;
}

JsonLine& JsonLine::add(std::string_view key, double value) { return append(key, base::json_number(value)); }
JsonLine& JsonLine::add(std::string_view key, std::int64_t value) { return append(key, std::to_string(value)); }
JsonLine& JsonLine::add(std::string_view key, std::string_view value) { return append(key, quoted(value)); }
JsonLine& JsonLine::add(std::string_view key, const JsonLine& object) { return append(key, object.text()); }

JsonLine& JsonLine::add_or_null(std::string_view key, const std::optional<double>& value) {
    return value ? add(key, *value) : append(key, "null");
}

}  // namespace mfsdp::runtime
