#include "runtime/config/json_value.h"

#include "mfsdp/base/json_number.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace mfsdp::runtime {

namespace {

constexpr std::size_t kMaxMessageBytes = 120;

void append_escaped(std::string& out, char character) {
    const auto byte = static_cast<unsigned char>(character);
    switch (character) {
        case '\n':
            out += "\\n";
            return;
        case '\t':
            out += "\\t";
            return;
        case '\r':
            out += "\\r";
            return;
        default:
            break;
    }
    if (byte >= 0x20 && byte != 0x7f) {
        out += character;
        return;
    }
    std::array<char, 8> code{};
    std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(byte));
    out += code.data();
}

std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char character : text) {
        if (character == '"' || character == '\\') out += '\\';
        append_escaped(out, character);
    }
    return out + '"';
}

std::string scalar_text(const JsonValue& value) {
    switch (value.kind) {
        case JsonValue::Kind::null:
            return "null";
        case JsonValue::Kind::boolean:
            return value.boolean ? "true" : "false";
        case JsonValue::Kind::integer:
            return std::to_string(value.integer);
        case JsonValue::Kind::number:
            return base::json_number(value.number);
        default:
            return quoted(value.text);
    }
}

std::string list_text(const JsonValue& value, std::string_view separator) {
    std::string out = "[";
    for (std::size_t i = 0; i < value.items.size(); ++i) {
        if (i > 0) out += separator;
        out += canonical_text(value.items[i]);
    }
    return out + ']';
}

void append_pretty(std::string& out, const JsonValue& value, std::size_t depth) {
    if (value.is(JsonValue::Kind::list)) {
        out += list_text(value, ", ");
    } else if (!value.is(JsonValue::Kind::object)) {
        out += scalar_text(value);
    } else if (value.members.empty()) {
        out += "{}";
    } else {
        const std::string indent((depth + 1) * 2, ' ');
        out += "{\n";
        for (std::size_t i = 0; i < value.members.size(); ++i) {
            out += indent + quoted(value.members[i].name) + ": ";
            append_pretty(out, value.members[i].value, depth + 1);
            out += i + 1 < value.members.size() ? ",\n" : "\n";
        }
        out += std::string(depth * 2, ' ') + '}';
    }
}

}  // namespace

bool JsonValue::is_oversized_integer() const {
    return is(Kind::number) && !text.empty() && text.find_first_of(".eE") == std::string::npos;
}

const JsonValue* JsonValue::find(std::string_view name) const {
    const auto found = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.name == name; });
    return found == members.end() ? nullptr : &found->value;
}

JsonValue* JsonValue::find(std::string_view name) {
    const auto found = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.name == name; });
    return found == members.end() ? nullptr : &found->value;
}

JsonValue& JsonValue::set(std::string_view name, JsonValue value) {
    if (!is(Kind::object)) {
        *this = JsonValue{};
        kind = Kind::object;
    }
    if (JsonValue* present = find(name)) {
        *present = std::move(value);
        return *present;
    }
    members.push_back({std::string(name), std::move(value)});
    return members.back().value;
}

JsonValue JsonValue::from_integer(std::int64_t value) {
    JsonValue result;
    result.kind = Kind::integer;
    result.integer = value;
    result.number = static_cast<double>(value);
    result.text = std::to_string(value);
    return result;
}

JsonValue JsonValue::from_number(double value) {
    JsonValue result;
    result.kind = Kind::number;
    result.number = value;
    result.text = base::json_number(value);
    return result;
}

JsonValue JsonValue::from_string(std::string_view value) {
    JsonValue result;
    result.kind = Kind::string;
    result.text = value;
    return result;
}

std::string_view kind_name(const JsonValue& value) {
    constexpr std::array<std::string_view, 7> kNames = {"null",   "boolean", "integer", "number",
                                                        "string", "list",    "object"};
    return kNames[static_cast<std::size_t>(value.kind)];
}

bool same_value(const JsonValue& a, const JsonValue& b) {
    const auto numeric = [](const JsonValue& v) {
        return v.is(JsonValue::Kind::integer) || v.is(JsonValue::Kind::number);
    };
    if (numeric(a) && numeric(b)) return a.number == b.number;
    return a.kind == b.kind && canonical_text(a) == canonical_text(b);
}

std::string canonical_text(const JsonValue& value) {
    if (value.is(JsonValue::Kind::list)) return list_text(value, ",");
    if (!value.is(JsonValue::Kind::object)) return scalar_text(value);
    std::vector<const JsonMember*> sorted;
    for (const auto& member : value.members) sorted.push_back(&member);
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
    std::string out = "{";
    for (const auto* member : sorted) {
        if (out.size() > 1) out += ',';
        out += quoted(member->name) + ':' + canonical_text(member->value);
    }
    return out + '}';
}

std::string pretty_text(const JsonValue& value) {
    std::string out;
    append_pretty(out, value, 0);
    return out + '\n';
}

std::string message_text(std::string_view text) {
    std::string out;
    for (const char character : text) {
        // A cut must not fall inside a UTF-8 sequence: continuation bytes are 10xxxxxx.
        if (out.size() >= kMaxMessageBytes && (static_cast<unsigned char>(character) & 0xc0) != 0x80) {
            return out + "...";
        }
        append_escaped(out, character);
    }
    return out;
}

std::string message_text(const JsonValue& value) {
    switch (value.kind) {
        case JsonValue::Kind::integer:
        case JsonValue::Kind::number:
        case JsonValue::Kind::string:
            return message_text(value.text);
        default:
            return message_text(canonical_text(value));
    }
}

}  // namespace mfsdp::runtime
