#pragma once

#include "mfsdp/runtime/config/schema.h"

namespace mfsdp::runtime::rows {

/// Writes one row of the schema as one expression: `integer("train.steps").required().at_least(1)`.
class KeyBuilder {
  public:
    KeyBuilder(std::string_view path, KeyType type, std::string_view default_json);

    KeyBuilder& required();
    KeyBuilder& at_least(std::int64_t low);
    KeyBuilder& at_least_zero();
    KeyBuilder& above_zero();
    KeyBuilder& from_zero_below_one();
    KeyBuilder& from_zero_to_one();
    KeyBuilder& one_of(std::vector<double> values, std::string_view allowed);
    KeyBuilder& in(std::int64_t low, std::int64_t high);
    KeyBuilder& multiple_of(std::int64_t divisor, std::string_view allowed);
    KeyBuilder& ceiling(std::int64_t value);
    KeyBuilder& two_entries(std::string_view allowed);
    KeyBuilder& allowed(std::string_view text);
    KeyBuilder& names(std::vector<std::string_view> supported, std::vector<std::string_view> later = {});
    KeyBuilder& meaning(std::string_view text);
    KeyBuilder& only(std::string_view selector, std::vector<std::string_view> values);
    /// Marks the key as one of a feature that this version lacks.
    KeyBuilder& later(std::vector<std::string_view> off_values);
    KeyBuilder& foreign();

    operator KeyRow() const { return row_; }  // NOLINT(google-explicit-constructor): rows are listed in braces

  private:
    KeyRow row_;
};

[[nodiscard]] KeyBuilder integer(std::string_view path, std::string_view default_json = "null");
[[nodiscard]] KeyBuilder number(std::string_view path, std::string_view default_json = "null");
[[nodiscard]] KeyBuilder boolean(std::string_view path, std::string_view default_json);
[[nodiscard]] KeyBuilder string(std::string_view path, std::string_view default_json = "null");
[[nodiscard]] KeyBuilder name(std::string_view path, std::string_view default_json = "null");
[[nodiscard]] KeyBuilder string_list(std::string_view path, std::string_view default_json);
[[nodiscard]] KeyBuilder number_list(std::string_view path, std::string_view default_json);

// The sections of the table, in this order.
[[nodiscard]] std::vector<KeyRow> model_keys();
[[nodiscard]] std::vector<KeyRow> data_and_train_keys();
[[nodiscard]] std::vector<KeyRow> optimizer_keys();
[[nodiscard]] std::vector<KeyRow> parallel_and_precision_keys();
[[nodiscard]] std::vector<KeyRow> checkpoint_and_telemetry_keys();

}  // namespace mfsdp::runtime::rows
