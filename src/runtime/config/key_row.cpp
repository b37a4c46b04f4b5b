#include "runtime/config/key_row.h"

#include <utility>

namespace mfsdp::runtime {

namespace rows {

namespace {

// Every integer up to this is exact in double, and sums of a few stay inside int64.
constexpr std::int64_t kDefaultCeiling = std::int64_t{1} << 53;

}  // namespace

KeyBuilder::KeyBuilder(std::string_view path, KeyType type, std::string_view default_json) {
    row_.path = path;
    row_.type = type;
    row_.default_json = default_json;
    row_.limits.ceiling = kDefaultCeiling;
}

KeyBuilder& KeyBuilder::required() {
    row_.required = true;
    return *this;
}

KeyBuilder& KeyBuilder::at_least(std::int64_t low) {
    row_.limits.low = static_cast<double>(low);
    row_.allowed = low == 0 ? ">= 0" : low == 1 ? ">= 1" : low == 2 ? ">= 2" : row_.allowed;
    return *this;
}

KeyBuilder& KeyBuilder::at_least_zero() { return at_least(0); }

KeyBuilder& KeyBuilder::above_zero() {
    row_.limits.low = 0;
    row_.limits.low_open = true;
    return allowed("> 0");
}

KeyBuilder& KeyBuilder::from_zero_below_one() {
    row_.limits.low = 0;
    row_.limits.high = 1;
    row_.limits.high_open = true;
    return allowed("in [0, 1)");
}

KeyBuilder& KeyBuilder::from_zero_to_one() {
    row_.limits.low = 0;
    row_.limits.high = 1;
    return allowed("in [0, 1]");
}

KeyBuilder& KeyBuilder::one_of(std::vector<double> values, std::string_view allowed) {
    row_.values = std::move(values);
    row_.allowed = allowed;
    return *this;
}

KeyBuilder& KeyBuilder::in(std::int64_t low, std::int64_t high) {
    row_.limits.low = static_cast<double>(low);
    row_.limits.high = static_cast<double>(high);
    return *this;
}

KeyBuilder& KeyBuilder::multiple_of(std::int64_t divisor, std::string_view allowed) {
    row_.limits.multiple_of = divisor;
    row_.allowed = allowed;
    return *this;
}

KeyBuilder& KeyBuilder::ceiling(std::int64_t value) {
    row_.limits.ceiling = value;
    return *this;
}

KeyBuilder& KeyBuilder::two_entries(std::string_view allowed) {
    row_.count = 2;
    row_.allowed = allowed;
    return *this;
}

KeyBuilder& KeyBuilder::allowed(std::string_view text) {
    row_.allowed = text;
    return *this;
}

KeyBuilder& KeyBuilder::names(std::vector<std::string_view> supported, std::vector<std::string_view> later) {
    row_.names = std::move(supported);
    row_.later_names = std::move(later);
    return *this;
}

KeyBuilder& KeyBuilder::meaning(std::string_view text) {
    row_.meaning = text;
    return *this;
}

KeyBuilder& KeyBuilder::only(std::string_view selector, std::vector<std::string_view> values) {
    row_.scopes.push_back({selector, std::move(values)});
    return *this;
}

KeyBuilder& KeyBuilder::later(std::vector<std::string_view> off_values) {
    row_.support = KeySupport::later;
    row_.off_values = std::move(off_values);
    return *this;
}

KeyBuilder& KeyBuilder::foreign() {
    row_.support = KeySupport::foreign;
    return meaning("without effect; accepted because published files hold it");
}

KeyBuilder integer(std::string_view path, std::string_view default_json) {
    return {path, KeyType::integer, default_json};
}
KeyBuilder number(std::string_view path, std::string_view default_json) {
    return {path, KeyType::number, default_json};
}
KeyBuilder boolean(std::string_view path, std::string_view default_json) {
    return {path, KeyType::boolean, default_json};
}
KeyBuilder string(std::string_view path, std::string_view default_json) {
    return {path, KeyType::string, default_json};
}
KeyBuilder name(std::string_view path, std::string_view default_json) { return {path, KeyType::name, default_json}; }
KeyBuilder string_list(std::string_view path, std::string_view default_json) {
    return {path, KeyType::string_list, default_json};
}
KeyBuilder number_list(std::string_view path, std::string_view default_json) {
    return {path, KeyType::number_list, default_json};
}

}  // namespace rows

const std::vector<KeyRow>& schema() {
    static const std::vector<KeyRow> table = [] {
        std::vector<KeyRow> all;
        for (const auto& section : {rows::model_keys(), rows::data_and_train_keys(), rows::optimizer_keys(),
                                    rows::parallel_and_precision_keys(), rows::checkpoint_and_telemetry_keys()}) {
            all.insert(all.end(), section.begin(), section.end());
        }
        return all;
    }();
    return table;
}

}  // namespace mfsdp::runtime
