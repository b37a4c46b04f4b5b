#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp::runtime {

enum class KeyType { integer, number, boolean, string, name, string_list, number_list };

enum class KeySupport {
    full,
    later,   ///< of a feature this version lacks: accepts only its off values
    foreign  ///< held by published model files: accepts null, false or 0, and is not part of a resolved configuration
};

/// What the value of an integer or number key, or each entry of a list of numbers, must satisfy.
struct KeyLimits {
    double low = -std::numeric_limits<double>::infinity();
    double high = std::numeric_limits<double>::infinity();
    bool low_open = false;
    bool high_open = false;
    std::int64_t multiple_of = 1;
    /// Of integers, above `allowed`: keeps sums and products of checked values inside int64.
    std::int64_t ceiling = std::numeric_limits<std::int64_t>::max();
};

/// The value of a scope whose selector is a number that turns its feature on.
inline constexpr std::string_view kAboveZero = "> 0";

/// A key exists, or is used, only while the key `selector` has one of `values`: names, "true" or kAboveZero.
struct KeyScope {
    std::string_view selector;
    std::vector<std::string_view> values;
};

/// One key of the configuration: everything that parser, messages, --print-config, docs/config.md and
/// configs/schema.json know of it.
struct KeyRow {
    std::string_view path;  ///< `optimizer.matrix.momentum`; a last part `*_pdrop` stands for every key that ends so
    KeyType type = KeyType::integer;
    KeySupport support = KeySupport::full;
    bool required = false;
    std::string_view default_json = "null";     ///< as JSON text; "null" also means that null may be given
    std::vector<std::string_view> names;        ///< of type name: what is accepted
    std::vector<std::string_view> later_names;  ///< of type name: known, but not supported by this version
    std::vector<std::string_view> off_values;   ///< of support later, as JSON text; the first is shown, none: left out
    std::vector<KeyScope> scopes;               ///< all must hold
    KeyLimits limits;
    std::vector<double> values;         ///< of type number: what is accepted; empty: all within the limits
    std::optional<std::int64_t> count;  ///< of a list: its exact length
    std::string_view allowed;           ///< text after "must be": the *allowed* column; empty for type name
    std::string_view meaning;           ///< one sentence or less for docs/config.md and for editors, in Markdown

    [[nodiscard]] bool nullable() const { return default_json == "null" && !required; }
};

/// The table, in the order of docs/config.md and of --print-config. A path appears twice where its default depends on
/// the model family. Immutable; built on first use.
[[nodiscard]] const std::vector<KeyRow>& schema();

}  // namespace mfsdp::runtime
