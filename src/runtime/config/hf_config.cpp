#include "runtime/config/hf_config.h"

#include "mfsdp/runtime/config/schema.h"

#include "runtime/config/document.h"

#include <algorithm>
#include <array>
#include <filesystem>

namespace mfsdp::runtime {

namespace {

using Kind = JsonValue::Kind;

/// Switches of Hugging Face models that change what is computed; only the value that means our computation is accepted.
struct FixedKey {
    std::string_view name;
    bool wanted;
};
constexpr std::array<FixedKey, 5> kFixedKeys = {{{"scale_attn_weights", true},
                                                 {"scale_attn_by_inverse_layer_idx", false},
                                                 {"add_cross_attention", false},
                                                 {"is_encoder_decoder", false},
                                                 {"use_qk_norm", false}}};

/// Ours, even if a file should hold them; and the stored type, which yields to precision.param_dtype.
constexpr std::array<std::string_view, 5> kIgnoredKeys = {"hf_config", "init_from", "make_vocab_size_divisible_by",
                                                          "torch_dtype", "dtype"};

bool is_foreign_name(std::string_view name) {
    // summary_* and classifier_* belong to classification heads; published GPT-2 files have them with dropout 0.1.
    if (name.starts_with("summary_") || name.starts_with("classifier_")) return false;
    return name.ends_with("_dropout") || name.ends_with("_pdrop");
}

/// Whether the schema has `model.<name>` for this family.
bool is_model_key(std::string_view name, std::string_view family) {
    const std::string path = "model." + std::string(name);
    return is_foreign_name(name) || std::any_of(schema().begin(), schema().end(), [&](const KeyRow& row) {
               if (row.path != path) return false;
               if (row.scopes.empty()) return true;
               const auto& families = row.scopes.front().values;
               return std::find(families.begin(), families.end(), family) != families.end();
           });
}

class Import {
  public:
    /// key  the key of the section that names the file, for messages
    Import(JsonValue& model, std::string_view key, std::string path, std::vector<std::string>& errors)
        : model_(model), key_(key), path_(std::move(path)), errors_(errors) {}

    ImportedModel run() {
        result_.bookkeeping.kind = Kind::object;
        const auto file = read_file();
        if (!file) {
            result_.readable = false;
            return result_;
        }
        const auto family = choose_family(*file);
        std::vector<std::string> kept;
        if (family == "qwen3") require_head_sizes(*file);
        for (const auto& [name, value] : file->members) {
            if (std::find(kIgnoredKeys.begin(), kIgnoredKeys.end(), name) != kIgnoredKeys.end()) continue;
            if (name == "rope_parameters") {
                take_rope_parameters(value);
            } else if (is_model_key(name, family)) {
                if (model_.find(name) == nullptr && !value.is(Kind::null)) model_.set(name, value);
            } else {
                check_fixed(name, value);
                result_.bookkeeping.set(name, value);
                kept.push_back(message_text(name));
            }
        }
        if (!kept.empty()) {
            result_.notices.push_back("model." + key_ +
                                      ": kept for exported models, without effect on training: " + join(kept, ", "));
        }
        return result_;
    }

  private:
    [[nodiscard]] std::string place() const { return "config: model." + key_ + " = " + message_text(path_); }

    std::optional<JsonValue> read_file() {
        std::error_code ignored;
        if (path_.find('\0') != std::string::npos || !std::filesystem::is_regular_file(path_, ignored)) {
            errors_.push_back(place() + ": must be an existing file");
            return std::nullopt;
        }
        auto file = read_json_file(path_, errors_);
        if (file && !file->is(Kind::object)) {
            errors_.push_back(place() + ": expected an object, the file holds a " + std::string(kind_name(*file)));
            return std::nullopt;
        }
        return file;
    }

    std::string choose_family(const JsonValue& file) {
        const JsonValue* in_file = file.find("model_type");
        const JsonValue* given = model_.find("model_type");
        std::string stored = in_file != nullptr ? in_file->text : "";
        if (given == nullptr || in_file == nullptr) return given != nullptr ? given->text : stored;
        if (given->text != stored) {
            errors_.push_back("config: model.model_type = " + message_text(*given) + ": " + message_text(path_) +
                              " is a " + message_text(*in_file) + " model");
        }
        return stored;
    }

    /// Hugging Face's defaults of these are those of one size of qwen3, ours come from other keys: a file must say
    /// them.
    void require_head_sizes(const JsonValue& file) {
        for (const char* name : {"head_dim", "num_key_value_heads"}) {
            if (file.find(name) != nullptr || model_.find(name) != nullptr) continue;
            errors_.push_back(std::string("config: model.").append(name).append(": required, ") + message_text(path_) +
                              " does not say it");
        }
    }

    void take_rope_parameters(const JsonValue& value) {
        if (value.is(Kind::null)) return;
        const JsonValue* type = value.find("rope_type");
        const JsonValue* theta = value.find("rope_theta");
        const JsonValue* factor = value.find("partial_rotary_factor");
        if (!value.is(Kind::object) || (type != nullptr && type->text != "default") ||
            (factor != nullptr && !turns_whole_heads(*factor))) {
            errors_.push_back("config: model.rope_parameters = " + message_text(value) + ": not supported by mfsdp");
        } else if (theta != nullptr && model_.find("rope_theta") == nullptr) {
            model_.set("rope_theta", *theta);
        }
    }

    void check_layer_types(const JsonValue& value) {
        const auto is_full = [](const JsonValue& type) { return type.text == "full_attention"; };
        if (value.is(Kind::null)) return;
        if (value.is(Kind::list) && std::all_of(value.items.begin(), value.items.end(), is_full)) return;
        errors_.push_back("config: model.layer_types = " + message_text(value) + ": not supported by mfsdp");
    }

    /// Rotary positions over a part of each head are another model.
    static bool turns_whole_heads(const JsonValue& factor) {
        return factor.is(Kind::null) || ((factor.is(Kind::number) || factor.is(Kind::integer)) && factor.number == 1.0);
    }

    void check_fixed(std::string_view name, const JsonValue& value) {
        if (name == "layer_types") check_layer_types(value);
        if (name == "partial_rotary_factor" && !turns_whole_heads(value)) {
            errors_.push_back("config: model.partial_rotary_factor = " + message_text(value) +
                              ": not supported by mfsdp");
        }
        for (const auto& [fixed, wanted] : kFixedKeys) {
            if (name != fixed || value.is(Kind::null)) continue;
            if (value.is(Kind::boolean) && value.boolean == wanted) continue;
            errors_.push_back("config: model." + std::string(name) + " = " + message_text(value) +
                              ": not supported by mfsdp");
        }
    }

    JsonValue& model_;
    std::string key_;
    std::string path_;
    std::vector<std::string>& errors_;
    ImportedModel result_;
};

}  // namespace

ImportedModel import_hf_config(JsonValue& root, std::vector<std::string>& errors) {
    JsonValue* model = root.find("model");
    const JsonValue* path = model != nullptr ? model->find("hf_config") : nullptr;
    if (path != nullptr && path->is(Kind::string)) return Import(*model, "hf_config", path->text, errors).run();
    // Weights to start from describe their model themselves.
    const JsonValue* weights = model != nullptr ? model->find("init_from") : nullptr;
    if (weights == nullptr || !weights->is(Kind::string)) return {};
    const std::string file = (std::filesystem::path(weights->text) / "config.json").string();
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored)) {
        errors.push_back("config: model.init_from = " + message_text(weights->text) +
                         ": must be a directory with config.json and safetensors");
        ImportedModel nothing;
        nothing.readable = false;
        return nothing;
    }
    return Import(*model, "init_from", file, errors).run();
}

}  // namespace mfsdp::runtime
