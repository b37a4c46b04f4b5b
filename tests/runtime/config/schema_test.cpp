#include "mfsdp/runtime/config/schema.h"

#include "runtime/config/config_files.h"

#include <algorithm>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

using config_test::error_of;
using config_test::kGpt2;
using config_test::kLlama;
using mfsdp::runtime::KeyRow;
using mfsdp::runtime::KeySupport;
using mfsdp::runtime::KeyType;
using mfsdp::runtime::schema;

namespace {

std::string concrete_path(const KeyRow& row) {
    std::string path(row.path);
    if (const auto star = path.find('*'); star != std::string::npos) path.replace(star, 1, "attn");
    return path;
}

bool supported(std::string_view selector, std::string_view value) {
    return std::any_of(schema().begin(), schema().end(), [&](const KeyRow& row) {
        if (row.path != selector) return false;
        if (row.type == KeyType::boolean) return value == "true" || value == "false";
        if (row.type == KeyType::number) return value == mfsdp::runtime::kAboveZero;
        return std::find(row.names.begin(), row.names.end(), value) != row.names.end();
    });
}

struct Situation {
    std::string file;
    std::vector<std::string> overrides;
};

/// A valid configuration in which the key exists; empty if no supported choice has it.
std::optional<Situation> situation_of(const KeyRow& row) {
    Situation situation{kGpt2, {}};
    for (const auto& scope : row.scopes) {
        const auto value = std::find_if(scope.values.begin(), scope.values.end(),
                                        [&](auto candidate) { return supported(scope.selector, candidate); });
        if (value == scope.values.end()) return std::nullopt;
        if (scope.selector == "model.model_type") {
            situation.file = *value == "llama" ? kLlama : kGpt2;
        } else {
            const std::string_view set = *value == mfsdp::runtime::kAboveZero ? "100" : *value;
            situation.overrides.push_back(std::string(scope.selector).append("=").append(set));
        }
    }
    return situation;
}

nlohmann::json::json_pointer pointer(std::string path) {
    std::replace(path.begin(), path.end(), '.', '/');
    return nlohmann::json::json_pointer('/' + path);
}

}  // namespace

TEST_CASE("every key of the schema is checked where it exists and refused where it does not") {
    REQUIRE(schema().size() > 100);
    for (const KeyRow& row : schema()) {
        const std::string path = concrete_path(row);
        INFO(path);
        const auto situation = situation_of(row);
        if (!situation) {
            const std::string error = error_of(kGpt2, {path + "=0"});
            CHECK(error.starts_with("config: " + path + ": not "));
            continue;
        }
        auto overrides = situation->overrides;
        overrides.push_back(path + "={}");
        const std::string error = error_of(situation->file, overrides);
        switch (row.support) {
            case KeySupport::full:
                CHECK(error.starts_with("config: " + path + " = {}: expected "));
                break;
            case KeySupport::later:
                CHECK(error == "config: " + path + ": not supported by this version");
                break;
            case KeySupport::foreign:
                CHECK(error == "config: " + path + " = {}: not supported by mfsdp");
                break;
        }
    }
}

TEST_CASE("every default and off value of the schema is printed, and keys without either are left out") {
    for (const KeyRow& row : schema()) {
        INFO(row.path);
        const auto situation = situation_of(row);
        if (!situation || row.required) continue;
        const auto config = config_test::parse(situation->file, situation->overrides);
        const auto printed = nlohmann::json::parse(mfsdp::runtime::print_config(config));
        const auto where = pointer(concrete_path(row));
        const bool shown = row.support == KeySupport::full || !row.off_values.empty();
        REQUIRE(printed.contains(where) == shown);
        if (!shown) continue;
        // What the example files give differs from its default.
        if (row.path == "precision.param_dtype") {
            CHECK(printed.at(where) == "float32");
        } else {
            const auto expected = row.support == KeySupport::full ? row.default_json : row.off_values.front();
            CHECK(printed.at(where) == nlohmann::json::parse(expected));
        }
    }
}

TEST_CASE("the schema is free of contradictions") {
    std::set<std::string_view> selectors;
    for (const KeyRow& row : schema()) {
        INFO(row.path);
        for (const auto& scope : row.scopes) selectors.insert(scope.selector);
        if (row.support == KeySupport::full) CHECK((row.type == KeyType::name) == !row.names.empty());
        if (row.support != KeySupport::later) CHECK(row.off_values.empty());
        const bool bounded = row.type == KeyType::integer || row.type == KeyType::number;
        if (row.support == KeySupport::full && bounded) CHECK(!row.allowed.empty());
    }
    REQUIRE(!selectors.empty());
    for (const auto selector : selectors) {
        const auto row =
            std::find_if(schema().begin(), schema().end(), [&](const auto& r) { return r.path == selector; });
        REQUIRE(row != schema().end());
        CHECK((row->type == KeyType::name || row->type == KeyType::boolean || row->type == KeyType::number));
    }
}

TEST_CASE("every key that can be used is explained") {
    for (const KeyRow& row : schema()) {
        INFO(row.path);
        if (row.support == KeySupport::full) CHECK(!row.meaning.empty());
    }
}
