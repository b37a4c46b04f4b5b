#include "mfsdp/runtime/config/schema.h"
#include "mfsdp/runtime/config/schema_documents.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace mfsdp::runtime {

namespace {

using Json = nlohmann::ordered_json;

/// JSON Schema's word for a value of the row, or of an entry of its list.
std::string type_word(KeyType type) {
    switch (type) {
        case KeyType::integer:
            return "integer";
        case KeyType::number:
        case KeyType::number_list:
            return "number";
        case KeyType::boolean:
            return "boolean";
        case KeyType::string:
        case KeyType::name:
        case KeyType::string_list:
            return "string";
    }
    return "?";
}

/// Whole numbers without a point: `>= 1` reads better than `>= 1.0`.
Json bound(double value) {
    if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
    return value;
}

void add_limits(Json& schema, const KeyRow& row) {
    const KeyLimits& limits = row.limits;
    if (std::isfinite(limits.low)) schema[limits.low_open ? "exclusiveMinimum" : "minimum"] = bound(limits.low);
    if (std::isfinite(limits.high)) schema[limits.high_open ? "exclusiveMaximum" : "maximum"] = bound(limits.high);
    if (limits.multiple_of > 1) schema["multipleOf"] = limits.multiple_of;
}

Json accepted_values(const std::vector<std::string_view>& texts) {
    Json values = Json::array();
    for (const std::string_view text : texts) values.push_back(Json::parse(text));
    return values;
}

/// What one key may hold.
Json value_schema(const KeyRow& row) {
    Json schema = Json::object();
    if (!row.meaning.empty()) schema["description"] = row.meaning;
    if (row.support == KeySupport::foreign) {
        schema["enum"] = {nullptr, false, 0};
        return schema;
    }
    if (row.support == KeySupport::later) {
        if (row.off_values.empty()) return false;
        schema["enum"] = accepted_values(row.off_values);
        return schema;
    }
    const bool list = row.type == KeyType::string_list || row.type == KeyType::number_list;
    const std::string type = list ? "array" : type_word(row.type);
    schema["type"] = row.nullable() ? Json{type, "null"} : Json(type);
    if (row.type == KeyType::name) {
        schema["enum"] = row.names;
        if (row.nullable()) schema["enum"].push_back(nullptr);
    } else if (list) {
        Json entry{{"type", type_word(row.type)}};
        add_limits(entry, row);
        schema["items"] = std::move(entry);
        if (row.count) schema["minItems"] = schema["maxItems"] = *row.count;
        if (row.required) schema["minItems"] = 1;
    } else if (row.type == KeyType::integer || row.type == KeyType::number) {
        add_limits(schema, row);
        if (!row.values.empty()) schema["enum"] = row.values;
    }
    if (!row.required) schema["default"] = Json::parse(row.default_json);
    return schema;
}

std::vector<std::string> parts_of(std::string_view path) {
    std::vector<std::string> parts;
    for (auto dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
        parts.emplace_back(path.substr(0, dot));
        path.remove_prefix(dot + 1);
    }
    parts.emplace_back(path);
    return parts;
}

/// The schema of the object that holds the key, made on the way.
Json& holder(Json& root, std::string_view path) {
    Json* section = &root;
    const std::vector<std::string> parts = parts_of(path);
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        Json& inner = (*section)["properties"][parts[i]];
        if (inner.is_null()) inner = Json{{"type", "object"}, {"additionalProperties", false}};
        section = &inner;
    }
    return *section;
}

/// The pattern of a last part such as `*_dropout`.
std::string pattern_of(const std::string& part) { return "^.+" + part.substr(1) + "$"; }

void add_key(Json& root, const KeyRow& row) {
    Json& section = holder(root, row.path);
    const std::string part = parts_of(row.path).back();
    if (part.front() == '*') {
        section["patternProperties"][pattern_of(part)] = value_schema(row);
    } else if (section.contains("properties") && section["properties"].contains(part)) {
        // A key whose default depends on the family or the optimizer stands in the table twice; neither default is the
        // key's, and either's names may be given.
        Json& both = section["properties"][part];
        both.erase("default");
        for (const std::string_view name : row.names) {
            if (std::find(both["enum"].begin(), both["enum"].end(), name) == both["enum"].end()) {
                both["enum"].push_back(name);
            }
        }
    } else {
        section["properties"][part] = value_schema(row);
    }
    // A Hugging Face file may give the model's required keys instead: require_model_keys.
    if (row.required && row.scopes.empty() && !row.path.starts_with("model.")) section["required"].push_back(part);
}

/// `{properties: {a: {properties: {b: false}}}}`: the key may not be there.
Json forbidden(std::string_view path) {
    const std::vector<std::string> parts = parts_of(path);
    Json result = false;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) result = Json{{"properties", {{*part, result}}}};
    return result;
}

/// For each value of a selector: the keys that this choice does not have.
void add_choices(Json& root, const KeyRow& selector) {
    const std::string prefix(selector.path.substr(0, selector.path.rfind('.') + 1));
    const std::string name(selector.path.substr(prefix.size()));
    for (const std::string_view value : selector.names) {
        Json then = Json::object();
        for (const KeyRow& row : schema()) {
            const auto scope = std::find_if(row.scopes.begin(), row.scopes.end(),
                                            [&](const KeyScope& s) { return s.selector == selector.path; });
            if (scope == row.scopes.end()) continue;
            const auto has = [&](const KeyRow& other) {  // another row of the same key may have it
                return other.path == row.path &&
                       std::all_of(other.scopes.begin(), other.scopes.end(), [&](const KeyScope& s) {
                           return s.selector != selector.path ||
                                  std::find(s.values.begin(), s.values.end(), value) != s.values.end();
                       });
            };
            if (std::any_of(schema().begin(), schema().end(), has)) continue;
            then.merge_patch(forbidden(row.path.substr(prefix.size())));
        }
        if (then.empty()) continue;
        Json condition{{"properties", {{name, {{"const", value}}}}}};
        // An absent selector has its default, whose condition therefore asks for no key.
        if (selector.default_json != '"' + std::string(value) + '"') condition["required"] = {name};
        holder(root, selector.path)["allOf"].push_back({{"if", std::move(condition)}, {"then", std::move(then)}});
    }
}

bool belongs_to(const KeyRow& row, std::string_view family) {
    return std::any_of(row.scopes.begin(), row.scopes.end(), [&](const KeyScope& scope) {
        return std::find(scope.values.begin(), scope.values.end(), family) != scope.values.end();
    });
}

/// What the model must say where no Hugging Face file is named that could: for every family, and for each its own
/// sizes.
void require_model_keys(Json& root) {
    const std::string prefix = "model.";
    const KeyRow& selector = *std::find_if(schema().begin(), schema().end(),
                                           [](const KeyRow& row) { return row.path == "model.model_type"; });
    std::vector<std::string_view> families{""};
    families.insert(families.end(), selector.names.begin(), selector.names.end());
    for (const std::string_view family : families) {
        Json condition{{"properties", {{"hf_config", {{"type", "null"}}}, {"init_from", {{"type", "null"}}}}}};
        if (!family.empty()) {
            condition["properties"]["model_type"]["const"] = family;
            condition["required"] = {"model_type"};
        }
        Json keys = Json::array();
        for (const KeyRow& row : schema()) {
            const bool wanted = row.required && row.path.starts_with(prefix) &&
                                (family.empty() ? row.scopes.empty() : belongs_to(row, family));
            if (wanted) keys.push_back(row.path.substr(prefix.size()));
        }
        if (keys.empty()) continue;
        holder(root, selector.path)["allOf"].push_back(
            {{"if", std::move(condition)}, {"then", {{"required", std::move(keys)}}}});
    }
}

}  // namespace

std::string editor_schema() {
    Json root{{"$schema", "http://json-schema.org/draft-07/schema#"},
              {"title", "Configuration of mfsdp-train"},
              {"description", "Generated from the program's schema table; docs/config.md explains every key."},
              {"type", "object"},
              {"additionalProperties", false},
              {"properties", {{"$schema", {{"type", "string"}}}}}};
    for (const KeyRow& row : schema()) add_key(root, row);
    for (const KeyRow& row : schema()) {
        const bool selects = std::any_of(schema().begin(), schema().end(), [&](const KeyRow& other) {
            return std::any_of(other.scopes.begin(), other.scopes.end(),
                               [&](const KeyScope& scope) { return scope.selector == row.path; });
        });
        if (selects) add_choices(root, row);
    }
    require_model_keys(root);
    for (const char* const section : {"data", "train", "optimizer"}) root["required"].push_back(section);
    root["required"].insert(root["required"].begin(), "model");
    return root.dump(2) + "\n";
}

}  // namespace mfsdp::runtime
