#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp::runtime {

struct JsonMember;

/// A JSON value that remembers how its numbers were written, because messages quote them: `1e6` is not `1000000.0`.
struct JsonValue {
    enum class Kind { null, boolean, integer, number, string, list, object };

    Kind kind = Kind::null;
    bool boolean = false;
    std::int64_t integer = 0;
    double number = 0.0;  ///< of integers too
    std::string text;     ///< a string's content, or a number as written
    std::vector<JsonValue> items;
    std::vector<JsonMember> members;  ///< in the order of the file

    [[nodiscard]] bool is(Kind wanted) const { return kind == wanted; }
    /// A whole number outside the range of int64: its kind is `number`, which alone would mislead a message.
    [[nodiscard]] bool is_oversized_integer() const;
    [[nodiscard]] const JsonValue* find(std::string_view name) const;  ///< nullptr if absent or not an object
    [[nodiscard]] JsonValue* find(std::string_view name);
    /// Adds the member or replaces its value; *this becomes an object if it is none.
    JsonValue& set(std::string_view name, JsonValue value);

    static JsonValue from_integer(std::int64_t value);
    static JsonValue from_number(double value);
    static JsonValue from_string(std::string_view value);
};

struct JsonMember {
    std::string name;
    JsonValue value;
};

/// integer, number, boolean, string, list, object or null: the word of a message.
[[nodiscard]] std::string_view kind_name(const JsonValue& value);

/// Equal as settings: numbers by value, so that 0 and 0.0 are one.
[[nodiscard]] bool same_value(const JsonValue& a, const JsonValue& b);

/// Keys sorted bytewise, no spaces, shortest round-trip numbers (docs/formats.md, hash64).
[[nodiscard]] std::string canonical_text(const JsonValue& value);

/// Two spaces per level, members in their order, lists on one line.
[[nodiscard]] std::string pretty_text(const JsonValue& value);

/// How a message shows a value: numbers as written, strings without quotes, control characters escaped, long ones cut.
[[nodiscard]] std::string message_text(const JsonValue& value);
[[nodiscard]] std::string message_text(std::string_view text);

/// Reads one JSON text with `//` and `/* */` comments. Problems are appended to `errors` (`config: <place>: ...`): a
/// syntax error, ill-formed UTF-8, a number that double cannot hold, nesting deeper than 32, a key given twice. The
/// result is empty only if the text has no usable form at all; after a repeated key the last value stands.
[[nodiscard]] std::optional<JsonValue> read_json(std::string_view text, std::string_view place,
                                                 std::vector<std::string>& errors);

/// `read_json` of a file. A file that cannot be read is an error too.
[[nodiscard]] std::optional<JsonValue> read_json_file(const std::string& path, std::vector<std::string>& errors);

}  // namespace mfsdp::runtime
