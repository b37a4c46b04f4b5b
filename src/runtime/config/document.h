#pragma once

#include "mfsdp/runtime/config/schema.h"

#include "runtime/config/json_value.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp::runtime {

/// A configuration that the schema has checked: full key paths to valid values, defaults filled in. Keys that the
/// chosen model family, optimizer or strategy does not use, and keys without an off value of features that this
/// version lacks, are absent; so are keys whose value was an error.
class Document {
  public:
    [[nodiscard]] const JsonValue* find(std::string_view path) const;
    void set(std::string_view path, JsonValue value) { values_.insert_or_assign(std::string(path), std::move(value)); }

    /// The nested form, keys in the order of the schema.
    [[nodiscard]] JsonValue nested() const;

  private:
    std::map<std::string, JsonValue, std::less<>> values_;
};

/// Checks every given key against the schema and fills in the defaults. Appends all errors that one key alone decides.
///
/// `unread_sections`  sections of which an unknown part could not be read: their required keys are not asked for
[[nodiscard]] Document check_document(const JsonValue& root, const std::set<std::string>& unread_sections,
                                      std::vector<std::string>& errors);

/// Appends the errors that take two keys to see (docs/config.md, second table) and those of this build.
void check_key_pairs(const Document& document, std::vector<std::string>& errors);

/// The value at a dotted path of an unchecked file; nullptr if absent.
[[nodiscard]] const JsonValue* find_path(const JsonValue& root, std::string_view path);

/// Replaces the value at a dotted path; sections on the way are made, values that stand in it are replaced by sections.
void set_path(JsonValue& root, std::string_view path, JsonValue value);

/// `did you mean "x"` for the nearest of `known` by edit distance, else the list of them.
[[nodiscard]] std::string suggestion(std::string_view unknown, const std::vector<std::string>& known);

[[nodiscard]] std::string join(const std::vector<std::string>& words, std::string_view separator);

}  // namespace mfsdp::runtime
