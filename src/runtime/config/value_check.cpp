#include "runtime/config/value_check.h"

#include "mfsdp/base/error.h"

#include "runtime/config/document.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace mfsdp::runtime {

namespace {

using Kind = JsonValue::Kind;

/// One value under check, with the words that start its messages.
class ValueCheck {
  public:
    ValueCheck(const KeyRow& row, std::string path, std::vector<std::string>& errors)
        : row_(row), path_(std::move(path)), errors_(errors) {}

    bool run(JsonValue& value) {
        if (value.is(Kind::null)) return row_.nullable() || wrong_type(value);
        switch (row_.type) {
            case KeyType::integer:
                return check_integer(value);
            case KeyType::number:
                return check_number(value);
            case KeyType::boolean:
                return value.is(Kind::boolean) || wrong_type(value);
            case KeyType::string:
                return check_string(value);
            case KeyType::name:
                return check_name(value);
            case KeyType::string_list:
                return check_list(value, KeyType::string);
            case KeyType::number_list:
                return check_list(value, KeyType::number);
        }
        return false;
    }

  private:
    bool fail(const JsonValue& value, const std::string& reason) {
        errors_.push_back("config: " + path_ + " = " + message_text(value) + ": " + reason);
        return false;
    }

    bool not_allowed(const JsonValue& value) { return fail(value, "must be " + std::string(row_.allowed)); }

    bool wrong_type(const JsonValue& value) {
        constexpr std::array<std::string_view, 7> kExpected = {"integer", "number",          "boolean",        "string",
                                                               "string",  "list of strings", "list of numbers"};
        const auto expected = std::string(kExpected[static_cast<std::size_t>(row_.type)]);
        return fail(value, "expected " + expected + ", got " + std::string(kind_name(value)));
    }

    [[nodiscard]] bool within_limits(double number) const {
        const KeyLimits& limits = row_.limits;
        return (limits.low_open ? number > limits.low : number >= limits.low) &&
               (limits.high_open ? number < limits.high : number <= limits.high);
    }

    bool check_integer(const JsonValue& value) {
        if (value.is_oversized_integer()) {
            return value.number < 0 ? not_allowed(value)
                                    : fail(value, "must be <= " + std::to_string(row_.limits.ceiling));
        }
        if (!value.is(Kind::integer)) return wrong_type(value);
        const bool divides = value.integer % row_.limits.multiple_of == 0;
        if (!within_limits(value.number) || !divides) return not_allowed(value);
        if (value.integer > row_.limits.ceiling) {
            return fail(value, "must be <= " + std::to_string(row_.limits.ceiling));
        }
        return true;
    }

    bool check_number(JsonValue& value) {
        if (!value.is(Kind::number) && !value.is(Kind::integer)) return wrong_type(value);
        value.kind = Kind::number;
        const bool listed =
            row_.values.empty() || std::find(row_.values.begin(), row_.values.end(), value.number) != row_.values.end();
        if (!listed || !within_limits(value.number)) return not_allowed(value);
        // Most numbers end as float32: there a larger one would be infinite, a smaller one zero.
        const double size = std::abs(value.number);
        constexpr double kLargest = std::numeric_limits<float>::max(), kSmallest = std::numeric_limits<float>::min();
        if (size <= kLargest && (size == 0.0 || size >= kSmallest)) return true;
        return fail(value, "must be representable in float32");
    }

    bool check_string(const JsonValue& value) {
        if (!value.is(Kind::string)) return wrong_type(value);
        // A path with a zero byte would silently name another file.
        const bool may_be_empty = row_.default_json == "\"\"";
        if (value.text.find('\0') != std::string::npos) return fail(value, "must not contain a zero byte");
        return may_be_empty || !value.text.empty() || not_allowed(value);
    }

    bool check_name(const JsonValue& value) {
        if (!value.is(Kind::string)) return wrong_type(value);
        const auto listed = [&](const auto& names) {
            return std::find(names.begin(), names.end(), value.text) != names.end();
        };
        if (listed(row_.names)) return true;
        if (listed(row_.later_names)) return fail(value, "not supported by this version");
        const std::vector<std::string> names(row_.names.begin(), row_.names.end());
        return fail(value, "must be one of " + join(names, ", "));
    }

    bool check_list(JsonValue& value, KeyType entry_type) {
        if (!value.is(Kind::list)) return wrong_type(value);
        KeyRow entry_row = row_;
        entry_row.type = entry_type;
        entry_row.default_json = "";
        if (entry_type == KeyType::string) entry_row.allowed = "a pattern";
        bool valid = true;
        for (std::size_t i = 0; i < value.items.size(); ++i) {
            const std::string place = path_ + '[' + std::to_string(i) + ']';
            valid = ValueCheck(entry_row, place, errors_).run(value.items[i]) && valid;
        }
        const auto count = static_cast<std::int64_t>(value.items.size());
        const bool right_length = row_.count ? count == *row_.count : !row_.required || count > 0;
        return (right_length || not_allowed(value)) && valid;
    }

    const KeyRow& row_;
    std::string path_;
    std::vector<std::string>& errors_;
};

bool is_off(const JsonValue& value) {
    return value.is(Kind::null) || (value.is(Kind::boolean) && !value.boolean) ||
           ((value.is(Kind::integer) || value.is(Kind::number)) && value.number == 0.0);
}

}  // namespace

JsonValue table_value(std::string_view json) {
    std::vector<std::string> errors;
    auto value = read_json(json, "schema", errors);
    MFSDP_ASSERT(value && errors.empty(), "the schema table holds valid JSON: " + std::string(json));
    return *std::move(value);
}

bool check_value(const KeyRow& row, std::string_view path, JsonValue& value, std::vector<std::string>& errors) {
    const std::string place(path);
    if (row.support == KeySupport::foreign) {
        if (is_off(value)) return true;
        errors.push_back("config: " + place + " = " + message_text(value) + ": not supported by mfsdp");
        return false;
    }
    if (row.support == KeySupport::later) {
        for (const auto off : row.off_values) {
            if (!same_value(value, table_value(off))) continue;
            value = table_value(row.off_values.front());
            return true;
        }
        errors.push_back("config: " + place + ": not supported by this version");
        return false;
    }
    return ValueCheck(row, place, errors).run(value);
}

}  // namespace mfsdp::runtime
