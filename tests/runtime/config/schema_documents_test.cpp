#include "mfsdp/runtime/config/schema_documents.h"

#include "mfsdp/runtime/config/schema.h"

#include "runtime/config/config_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include <nlohmann/json.hpp>

using config_test::kGpt2;
using config_test::kLlama;
using nlohmann::json;

namespace {

std::string read_text(const std::filesystem::path& path) {
    std::ifstream file(path);
    REQUIRE(file);
    return {std::istreambuf_iterator<char>(file), {}};
}

const std::filesystem::path kTree = MFSDP_SOURCE_DIR;

bool has_type(const json& value, const std::string& type) {
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "boolean") return value.is_boolean();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    if (type == "object") return value.is_object();
    return type == "null" && value.is_null();
}

/// The words of JSON Schema (draft 7) that the file uses, by their definition; any other word fails the test.
class Validator {
  public:
    [[nodiscard]] bool valid(const json& value, const json& schema) const {
        if (schema.is_boolean()) return schema.get<bool>();
        return std::all_of(schema.items().begin(), schema.items().end(),
                           [&](const auto& item) { return holds(value, schema, item.key(), item.value()); });
    }

  private:
    [[nodiscard]] bool holds(const json& value, const json& schema, const std::string& word, const json& rule) const {
        if (word == "type") return type_holds(value, rule);
        if (word == "enum") return std::find(rule.begin(), rule.end(), value) != rule.end();
        if (word == "const") return value == rule;
        if (word == "minimum") return !value.is_number() || value.get<double>() >= rule.get<double>();
        if (word == "maximum") return !value.is_number() || value.get<double>() <= rule.get<double>();
        if (word == "exclusiveMinimum") return !value.is_number() || value.get<double>() > rule.get<double>();
        if (word == "exclusiveMaximum") return !value.is_number() || value.get<double>() < rule.get<double>();
        if (word == "multipleOf")
            return !value.is_number_integer() || value.get<std::int64_t>() % rule.get<std::int64_t>() == 0;
        if (word == "minItems") return !value.is_array() || value.size() >= rule.get<std::size_t>();
        if (word == "maxItems") return !value.is_array() || value.size() <= rule.get<std::size_t>();
        if (word == "items") return !value.is_array() || each_valid(value, rule);
        if (word == "required") return !value.is_object() || has_all(value, rule);
        if (word == "properties") return !value.is_object() || properties_valid(value, schema);
        if (word == "allOf") return all_valid(value, rule);
        if (word == "if") return !valid(value, rule) || valid(value, schema.at("then"));
        const bool read_elsewhere = word == "patternProperties" || word == "additionalProperties" || word == "then";
        const bool says_nothing = word == "$schema" || word == "title" || word == "description" || word == "default";
        REQUIRE((read_elsewhere || says_nothing));
        return true;
    }
    [[nodiscard]] static bool type_holds(const json& value, const json& rule) {
        if (rule.is_string()) return has_type(value, rule);
        return std::any_of(rule.begin(), rule.end(), [&](const json& type) { return has_type(value, type); });
    }
    [[nodiscard]] bool each_valid(const json& values, const json& schema) const {
        return std::all_of(values.begin(), values.end(), [&](const json& value) { return valid(value, schema); });
    }
    [[nodiscard]] bool all_valid(const json& value, const json& schemas) const {
        return std::all_of(schemas.begin(), schemas.end(), [&](const json& schema) { return valid(value, schema); });
    }
    [[nodiscard]] static bool has_all(const json& value, const json& names) {
        return std::all_of(names.begin(), names.end(),
                           [&](const json& name) { return value.contains(name.get<std::string>()); });
    }
    [[nodiscard]] bool properties_valid(const json& value, const json& schema) const {
        return std::all_of(value.items().begin(), value.items().end(), [&](const auto& item) {
            if (schema.at("properties").contains(item.key())) {
                return valid(item.value(), schema.at("properties").at(item.key()));
            }
            const json patterns = schema.value("patternProperties", json::object());
            for (const auto& [pattern, rule] : patterns.items()) {
                if (std::regex_search(item.key(), std::regex(pattern))) return valid(item.value(), rule);
            }
            return schema.value("additionalProperties", true);
        });
    }
};

bool accepts(const json& document) { return Validator().valid(document, json::parse(mfsdp::runtime::editor_schema())); }

json with(const std::string& text, const std::string& pointer, const json& value) {
    json document = json::parse(text, nullptr, true, true);
    document[json::json_pointer(pointer)] = value;
    return document;
}

}  // namespace

TEST_CASE("configs/schema.json and the tables of docs/config.md are those of the program") {
    const char* const way_out = "run scripts/generate_config_documents.sh";
    INFO(way_out);
    CHECK(read_text(kTree / "configs/schema.json") == mfsdp::runtime::editor_schema());
    const std::string page = read_text(kTree / "docs/config.md");
    const auto begin = page.find('\n', page.find("<!-- generated: begin")) + 1;
    const auto end = page.find("<!-- generated: end");
    REQUIRE(end != std::string::npos);
    CHECK(page.substr(begin, end - begin) == mfsdp::runtime::key_tables());
}

TEST_CASE("the tables name every key of the schema") {
    const std::string tables = mfsdp::runtime::key_tables();
    REQUIRE(mfsdp::runtime::schema().size() > 100);
    for (const auto& row : mfsdp::runtime::schema()) {
        INFO(row.path);
        CHECK(tables.find("| `" + std::string(row.path) + "` |") != std::string::npos);
    }
}

TEST_CASE("the schema for editors accepts every configuration of the tree, and what the program prints") {
    std::int64_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kTree / "configs")) {
        if (entry.is_directory() || entry.path().filename() == "schema.json") continue;
        INFO(entry.path());
        const json document = json::parse(read_text(entry.path()), nullptr, true, true);
        CHECK(accepts(document));
        // An example runs on as many ranks as it is started with.
        CHECK_FALSE(document.contains("/parallel/mesh"_json_pointer));
        ++files;
    }
    REQUIRE(files >= 4);
    for (const std::string& text : {kGpt2, kLlama}) {
        CHECK(accepts(json::parse(mfsdp::runtime::print_config(config_test::parse(text, {})))));
    }
}

TEST_CASE("the schema for editors refuses what one look at a file shows to be wrong") {
    REQUIRE(accepts(json::parse(kGpt2, nullptr, true, true)));
    REQUIRE(accepts(json::parse(kLlama, nullptr, true, true)));
    CHECK_FALSE(accepts(with(kGpt2, "/train/step", 5)));            // unknown
    CHECK_FALSE(accepts(with(kGpt2, "/train/steps", "5")));         // type
    CHECK_FALSE(accepts(with(kGpt2, "/train/steps", nullptr)));     // null only where it is the default
    CHECK(accepts(with(kGpt2, "/threads", nullptr)));               //
    CHECK_FALSE(accepts(with(kGpt2, "/optimizer/clip_grad", -1)));  // limits
    CHECK_FALSE(accepts(with(kGpt2, "/optimizer/lr", 0)));          //
    CHECK_FALSE(accepts(with(kGpt2, "/parallel/collectives/chunk_bytes", 1032)));
    CHECK_FALSE(accepts(with(kGpt2, "/optimizer/element/betas", {0.9, 0.95, 0.99})));
    CHECK_FALSE(accepts(with(kGpt2, "/optimizer/decay_style", "cosin")));
    CHECK_FALSE(accepts(with(kGpt2, "/data/train", json::array())));
    json without_steps = json::parse(kGpt2, nullptr, true, true);
    without_steps["train"].erase("steps");
    CHECK_FALSE(accepts(without_steps));
}

TEST_CASE("the schema for editors asks for the model's sizes unless a Hugging Face file may give them") {
    for (const std::string& text : {kGpt2, kLlama}) {
        const json whole = json::parse(text, nullptr, true, true);
        const bool is_gpt2 = whole.at("model").at("model_type") == "gpt2";
        for (const std::string key : {"model_type", "vocab_size", is_gpt2 ? "n_embd" : "hidden_size",
                                      is_gpt2 ? "n_positions" : "max_position_embeddings"}) {
            INFO(key);
            json document = whole;
            document["model"].erase(key);
            CHECK_FALSE(accepts(document));
            document["model"]["hf_config"] = nullptr;
            CHECK_FALSE(accepts(document));
            document["model"]["hf_config"] = "config.json";
            CHECK(accepts(document));
            document["model"].erase("hf_config");
            document["model"]["init_from"] = "runs/first/model";
            CHECK(accepts(document));
        }
    }
}

TEST_CASE("the schema for editors knows which keys a choice has") {
    CHECK_FALSE(accepts(with(kLlama, "/model/n_embd", 8)));
    CHECK_FALSE(accepts(with(kGpt2, "/model/head_dim", 8)));
    CHECK(accepts(with(kLlama, "/model/head_dim", 8)));
    CHECK(accepts(with(kGpt2, "/model/attn_pdrop", 0)));
    CHECK_FALSE(accepts(with(kGpt2, "/model/attn_pdrop", 0.1)));
    // Without a name the optimizer is muon, which has a momentum.
    json document = json::parse(kGpt2, nullptr, true, true);
    document["optimizer"].erase("matrix");
    document["optimizer"]["matrix"]["momentum"] = 0.9;
    CHECK(accepts(document));
    document["optimizer"]["matrix"]["name"] = "none";
    CHECK_FALSE(accepts(document));
    document = with(kGpt2, "/parallel/prefetch_units", 2);
    CHECK(accepts(document));
    document["parallel"]["strategy"] = "ddp";
    CHECK_FALSE(accepts(document));
    document = with(kGpt2, "/parallel/planner/weights/bytes", 2);
    CHECK(accepts(document));
    document["parallel"]["planner"]["policy"] = "bytes";
    CHECK_FALSE(accepts(document));
}
