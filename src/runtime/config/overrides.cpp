#include "runtime/config/overrides.h"

#include "runtime/config/document.h"

#include <algorithm>

namespace mfsdp::runtime {

namespace {

constexpr std::ptrdiff_t kMaxParts = 16;

}  // namespace

void apply_overrides(JsonValue& root, std::span<const std::string> overrides, std::vector<std::string>& errors) {
    for (const std::string& override_text : overrides) {
        const auto equals = override_text.find('=');
        const std::string_view path = std::string_view(override_text).substr(0, equals);
        const bool well_formed = equals != std::string::npos && !path.empty() && path.front() != '.' &&
                                 path.back() != '.' && path.find("..") == std::string_view::npos &&
                                 std::count(path.begin(), path.end(), '.') < kMaxParts;
        if (!well_formed) {
            errors.push_back("config: --set " + message_text(override_text) + ": expected section.key=value");
            continue;
        }
        const std::string_view text = std::string_view(override_text).substr(equals + 1);
        std::vector<std::string> problems;
        auto value = read_json(text, "--set", problems);
        if (value) {
            errors.insert(errors.end(), problems.begin(), problems.end());
        } else {
            value = JsonValue::from_string(text);
            // What is no JSON even inside quotes could be neither saved nor read again.
            std::vector<std::string> ill_formed;
            if (!read_json(canonical_text(*value), "--set", ill_formed)) {
                errors.push_back("config: --set " + message_text(override_text) + ": not UTF-8");
                continue;
            }
        }
        set_path(root, path, *std::move(value));
    }
}

}  // namespace mfsdp::runtime
