#include "model/strict_json.h"

#include "mfsdp/base/error.h"

#include <set>
#include <vector>

namespace mfsdp::model {

using Json = nlohmann::json;

Json parse_strict_json(const std::string& text, const std::function<void(const std::string&)>& fail) {
    // The parser takes a zero byte for the end of its input and would not look at what follows.
    if (text.find('\0') != std::string::npos) fail("contains a zero byte");
    std::vector<std::set<std::string>> keys;
    const auto refuse_duplicates = [&](int, Json::parse_event_t event, Json& value) {
        if (event == Json::parse_event_t::object_start) keys.emplace_back();
        if (event == Json::parse_event_t::object_end) keys.pop_back();
        if (event == Json::parse_event_t::key) {
            const auto& key = value.get_ref<const std::string&>();
            if (!keys.back().insert(key).second) fail("has the key '" + key + "' twice");
        }
        return true;
    };
    try {
        return Json::parse(text, refuse_duplicates);
    } catch (const Json::exception& error) {
        fail(std::string("is not UTF-8 JSON: ") + error.what());
    }
    raise_internal_error("unreachable", __FILE__, __LINE__, "fail throws");
}

}  // namespace mfsdp::model
