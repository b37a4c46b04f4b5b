#include "mfsdp/runtime/config/schema.h"
#include "mfsdp/runtime/config/schema_documents.h"

#include <algorithm>
#include <string>
#include <vector>

namespace mfsdp::runtime {

namespace {

std::string_view type_letter(const KeyRow& row) {
    switch (row.type) {
        case KeyType::integer:
            return "i";
        case KeyType::number:
            return "f";
        case KeyType::boolean:
            return "b";
        case KeyType::string:
            return "s";
        case KeyType::name:
            return "e";
        case KeyType::string_list:
            return "[s]";
        case KeyType::number_list:
            return "[f]";
    }
    return "?";
}

std::string joined(const std::vector<std::string_view>& words) {
    std::string text;
    for (const std::string_view word : words) text.append(text.empty() ? "" : ", ").append(word);
    return text;
}

std::string default_text(const KeyRow& row) {
    if (row.support == KeySupport::foreign) return "";
    std::string text(type_letter(row));
    if (row.required) return text + ", required";
    std::string value(row.default_json);
    if (row.type == KeyType::name && value.size() >= 2 && value.front() == '"')
        value = value.substr(1, value.size() - 2);
    return text.append(", ").append(value);
}

/// Values of the selectors for which the key exists, as far as this version supports them: "llama, qwen3".
std::string scope_text(const KeyRow& row) {
    std::string text;
    for (const KeyScope& scope : row.scopes) {
        const auto selector = std::find_if(schema().begin(), schema().end(),
                                           [&](const KeyRow& candidate) { return candidate.path == scope.selector; });
        if (selector->type == KeyType::boolean) {
            text.append(text.empty() ? "" : "; ").append(scope.selector.substr(scope.selector.rfind('.') + 1));
            continue;
        }
        if (selector->type == KeyType::number) {
            text.append(text.empty() ? "" : "; ").append(scope.selector.substr(scope.selector.rfind('.') + 1));
            text.append(" ").append(joined(scope.values));
            continue;
        }
        std::vector<std::string_view> supported;
        for (const std::string_view value : scope.values) {
            const auto& names = selector->names;
            if (std::find(names.begin(), names.end(), value) != names.end()) supported.push_back(value);
        }
        text.append(text.empty() ? "" : "; ").append(joined(supported));
    }
    return text;
}

std::string allowed_text(const KeyRow& row) {
    if (row.support == KeySupport::foreign) return "null, false or 0";
    return row.type == KeyType::name ? joined(row.names) : std::string(row.allowed);
}

std::string section_of(const KeyRow& row) { return std::string(row.path.substr(0, row.path.find('.'))); }

/// A cell of a Markdown table: a bar would end it.
std::string cell(std::string_view text) {
    std::string result;
    for (const char c : text) result.append(c == '|' ? "\\|" : std::string(1, c));
    return result;
}

std::string table_row(const KeyRow& row) {
    std::string text = "|";
    for (const std::string& part : {'`' + std::string(row.path) + '`', default_text(row), allowed_text(row),
                                    scope_text(row), std::string(row.meaning)}) {
        text.append(part.empty() ? " |" : " " + cell(part) + " |");
    }
    return text + "\n";
}

std::string later_row(const KeyRow& row) {
    const std::string off = row.off_values.empty() ? "" : '`' + joined(row.off_values) + '`';
    return "| `" + std::string(row.path) + "` | " + off + (off.empty() ? "|\n" : " |\n");
}

}  // namespace

std::string key_tables() {
    std::string text, later, names;
    std::string section;
    for (const KeyRow& row : schema()) {
        if (row.support == KeySupport::later) {
            later += later_row(row);
            continue;
        }
        // Keys without a section stand together at the end.
        const std::string own = row.path.find('.') == std::string_view::npos ? "top level" : section_of(row);
        if (own != section) {
            text +=
                "\n### " + own + "\n\n| key | type, default | allowed | only with | meaning |\n|---|---|---|---|---|\n";
            section = own;
        }
        text += table_row(row);
        if (!row.later_names.empty()) {
            names.append("- `").append(row.path).append("`: ").append(joined(row.later_names)).append("\n");
        }
    }
    if (!later.empty()) {
        text +=
            "\n### Keys of later versions\n\nAccepted with these values, which is what `--print-config` shows (the "
            "first); "
            "without one, not at all.\n\n| key | accepted |\n|---|---|\n" +
            later;
    }
    if (!names.empty()) text += "\n### Names known but refused\n\n" + names;
    return text;
}

}  // namespace mfsdp::runtime
