#include "runtime/config/document.h"

#include "mfsdp/base/error.h"

#include "runtime/config/value_check.h"

#include <algorithm>
#include <utility>

namespace mfsdp::runtime {

namespace {

using Kind = JsonValue::Kind;

enum class Applies { yes, no, unknown };

bool matches(std::string_view row_path, std::string_view path) {
    const auto star = row_path.find('*');
    if (star == std::string_view::npos) return row_path == path;
    const auto suffix = row_path.substr(star + 1);
    return path.size() > row_path.size() - 1 && path.starts_with(row_path.substr(0, star)) && path.ends_with(suffix);
}

bool is_section(std::string_view path) {
    return std::any_of(schema().begin(), schema().end(), [&](const KeyRow& row) {
        return row.path.size() > path.size() && row.path.starts_with(path) && row.path[path.size()] == '.';
    });
}

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

class DocumentCheck {
  public:
    DocumentCheck(const JsonValue& root, const std::set<std::string>& unread_sections, std::vector<std::string>& errors)
        : root_(root), skipped_(unread_sections), errors_(errors) {
        for (const KeyRow& row : schema()) {
            for (const KeyScope& scope : row.scopes) selected_.try_emplace(scope.selector, selected(scope.selector));
        }
    }

    Document run() {
        check_section(root_, "");
        for (const KeyRow& row : schema()) fill_in(row);
        return std::move(document_);
    }

  private:
    void report(const std::string& path, const std::string& reason) {
        errors_.push_back("config: " + message_text(path) + ": " + reason);
    }

    void check_section(const JsonValue& section, const std::string& prefix) {
        for (const auto& [name, value] : section.members) {
            const std::string path = prefix + name;
            const bool plain = !name.empty() && name.find('.') == std::string::npos;
            if (plain && is_section(path)) {
                check_subsection(path, value);
            } else if (path == "$schema") {
                if (!value.is(Kind::string)) {
                    report("$schema = " + message_text(value), "expected string, got " + std::string(kind_name(value)));
                }
            } else {
                check_key(path, value, plain);
            }
        }
    }

    void check_subsection(const std::string& path, const JsonValue& value) {
        if (value.is(Kind::object)) {
            check_section(value, path + '.');
            return;
        }
        skipped_.insert(path);
        report(path + " = " + message_text(value), "expected object, got " + std::string(kind_name(value)));
    }

    void check_key(const std::string& path, const JsonValue& value, bool plain) {
        given_.insert(path);
        std::vector<const KeyRow*> rows;
        for (const KeyRow& row : schema()) {
            if (matches(row.path, path)) rows.push_back(&row);
        }
        if (!plain) {
            report(path, "unknown key, names are not empty and have no dots: write nested objects");
            return;
        }
        if (rows.empty()) {
            report_unknown(path);
            return;
        }
        bool undecided = false;
        for (const KeyRow* row : rows) {
            const Applies applies = applies_to(*row);
            undecided = undecided || applies == Applies::unknown;
            if (applies != Applies::yes) continue;
            JsonValue kept = value;
            const bool valid = check_value(*row, path, kept, errors_);
            if (valid && keeps(*row)) document_.set(path, std::move(kept));
            return;
        }
        // Whether it applies hangs on a key that has an error of its own; one message is enough.
        if (!undecided) report_scope(path, rows);
    }

    /// Foreign keys have no effect, but beside hf_config they may override what its file says: they must be there
    /// again when the printed configuration is read.
    [[nodiscard]] bool keeps(const KeyRow& row) const {
        const JsonValue* imported = find_path(root_, "model.hf_config");
        return row.support != KeySupport::foreign || (imported != nullptr && imported->is(Kind::string));
    }

    void report_unknown(const std::string& path) {
        const auto dot = path.rfind('.');
        const std::string prefix = dot == std::string::npos ? "" : path.substr(0, dot + 1);
        std::vector<std::string> known;
        for (const KeyRow& row : schema()) {
            if (!row.path.starts_with(prefix) || applies_to(row) == Applies::no) continue;
            if (row.support == KeySupport::foreign) continue;
            std::string name(row.path.substr(prefix.size()));
            name = name.substr(0, name.find('.'));
            if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
        }
        report(path, "unknown key, " + suggestion(std::string_view(path).substr(prefix.size()), known));
    }

    void report_scope(const std::string& path, const std::vector<const KeyRow*>& rows) {
        const auto& scopes = rows.front()->scopes;
        const auto failed = std::find_if(scopes.begin(), scopes.end(),
                                         [&](const KeyScope& scope) { return holds(scope) == Applies::no; });
        const std::string choice = selected_.at(failed->selector).value_or("");
        if (failed->selector == "optimizer.matrix.name") {
            std::vector<std::string> owners;
            for (const KeyRow* row : rows) {
                for (const KeyScope& scope : row->scopes) {
                    if (scope.selector == failed->selector) {
                        owners.insert(owners.end(), scope.values.begin(), scope.values.end());
                    }
                }
            }
            const std::string verb = owners.size() == 1 ? " has it)" : " have it)";
            report(path, "not a key of " + choice + " (" + join(owners, ", ") + verb);
        } else if (failed->selector == "model.model_type") {
            report(path, "not a key of " + choice);
        } else {
            const auto label = failed->selector.substr(failed->selector.rfind('.') + 1);
            const bool weight = path.starts_with("parallel.planner.weights.");
            if (weight && std::exchange(weights_reported_, true)) return;
            report(weight ? "parallel.planner.weights" : path, "not used by " + std::string(label) + ' ' + choice);
        }
    }

    /// What a selector was set to; empty if that is missing, wrong or not supported.
    [[nodiscard]] std::optional<std::string> selected(std::string_view selector) const {
        const auto row = std::find_if(schema().begin(), schema().end(),
                                      [&](const KeyRow& candidate) { return candidate.path == selector; });
        const JsonValue* given = find_path(root_, selector);
        if (given == nullptr && row->required) return std::nullopt;
        const JsonValue value = given != nullptr ? *given : table_value(row->default_json);
        if (row->type == KeyType::boolean && value.is(Kind::boolean)) return value.boolean ? "true" : "false";
        if (row->type == KeyType::number && (value.is(Kind::number) || value.is(Kind::integer))) {
            if (value.number < 0.0) return std::nullopt;
            return value.number > 0.0 ? std::string(kAboveZero) : "0";
        }
        if (!value.is(Kind::string) || !contains(row->names, value.text)) return std::nullopt;
        return value.text;
    }

    [[nodiscard]] Applies holds(const KeyScope& scope) const {
        const auto& choice = selected_.at(scope.selector);
        if (!choice) return Applies::unknown;
        return contains(scope.values, *choice) ? Applies::yes : Applies::no;
    }

    [[nodiscard]] Applies applies_to(const KeyRow& row) const {
        Applies result = Applies::yes;
        for (const KeyScope& scope : row.scopes) {
            const Applies one = holds(scope);
            if (one == Applies::no) return one;
            if (one == Applies::unknown) result = one;
        }
        return result;
    }

    [[nodiscard]] bool in_skipped_section(std::string_view path) const {
        return std::any_of(skipped_.begin(), skipped_.end(), [&](const std::string& section) {
            return path.starts_with(section) && path[section.size()] == '.';
        });
    }

    void fill_in(const KeyRow& row) {
        const std::string path(row.path);
        if (given_.contains(path) || in_skipped_section(path) || row.support == KeySupport::foreign) return;
        if (applies_to(row) != Applies::yes) return;
        if (row.required) {
            report(path, "required");
            return;
        }
        if (row.support == KeySupport::later) {
            if (!row.off_values.empty()) document_.set(path, table_value(row.off_values.front()));
            return;
        }
        JsonValue value = table_value(row.default_json);
        std::vector<std::string> problems;
        MFSDP_ASSERT(check_value(row, path, value, problems), "a default is a value of its key: " + path);
        document_.set(path, std::move(value));
    }

    const JsonValue& root_;
    std::set<std::string> skipped_;
    std::vector<std::string>& errors_;
    std::map<std::string_view, std::optional<std::string>> selected_;
    std::set<std::string> given_;
    bool weights_reported_ = false;  // one line for both
    Document document_;
};

}  // namespace

const JsonValue* Document::find(std::string_view path) const {
    const auto found = values_.find(path);
    return found == values_.end() ? nullptr : &found->second;
}

void set_path(JsonValue& root, std::string_view path, JsonValue value) {
    JsonValue* section = &root;
    for (auto dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
        const auto name = path.substr(0, dot);
        JsonValue* inner = section->find(name);
        section = inner != nullptr ? inner : &section->set(name, {});
        path.remove_prefix(dot + 1);
    }
    section->set(path, std::move(value));
}

JsonValue Document::nested() const {
    JsonValue root;
    root.kind = Kind::object;
    for (const KeyRow& row : schema()) {
        for (const auto& [path, value] : values_) {
            if (matches(row.path, path)) set_path(root, path, value);
        }
    }
    return root;
}

const JsonValue* find_path(const JsonValue& root, std::string_view path) {
    const JsonValue* value = &root;
    while (value != nullptr) {
        const auto dot = path.find('.');
        value = value->find(path.substr(0, dot));
        if (dot == std::string_view::npos) return value;
        path.remove_prefix(dot + 1);
    }
    return nullptr;
}

Document check_document(const JsonValue& root, const std::set<std::string>& unread_sections,
                        std::vector<std::string>& errors) {
    return DocumentCheck(root, unread_sections, errors).run();
}

}  // namespace mfsdp::runtime
