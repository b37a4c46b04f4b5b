#include "mfsdp/base/error.h"
#include "mfsdp/model/huggingface.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace mfsdp::model {

namespace {

using Json = nlohmann::ordered_json;

/// Typed look-ups in one config.json; every failure names the file and the key.
class Keys {
  public:
    Keys(const Json& json, const std::string& source) : json_(json), source_(source) {}

    [[noreturn]] void fail(const std::string& key, const std::string& what) const {
        throw DataError("data: " + source_ + ": " + key + what);
    }
    [[noreturn]] void fail_value(const std::string& key, const std::string& wanted) const {
        fail(key, " = " + json_.at(key).dump() + ": " + wanted);
    }
    /// A key set to null counts as absent, as in Hugging Face.
    [[nodiscard]] bool has(const std::string& key) const { return json_.contains(key) && !json_.at(key).is_null(); }
    [[nodiscard]] const Json& at(const std::string& key) const { return json_.at(key); }

    [[nodiscard]] std::int64_t size(const std::string& key, std::int64_t largest = kLargestSize) const {
        if (!has(key)) fail(key, ": missing, must be an integer of at least 1");
        const Json& value = json_.at(key);
        // Unsigned numbers beyond int64 would turn negative; they are refused with the rest.
        if (!value.is_number_integer() || value.get<std::int64_t>() < 1 ||
            (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(largest))) {
            fail_value(key, "must be an integer from 1 to " + std::to_string(largest));
        }
        return value.get<std::int64_t>();
    }
    [[nodiscard]] std::int64_t size_or(const std::string& key, std::int64_t absent) const {
        return has(key) ? size(key) : absent;
    }
    /// Every block is a unit with a dozen parameters in memory.
    [[nodiscard]] std::int64_t blocks(const std::string& key) const { return size(key, kMostBlocks); }
    [[nodiscard]] double positive(const std::string& key, double absent) const {
        if (!has(key)) return absent;
        const Json& value = json_.at(key);
        if (!value.is_number() || !(value.get<double>() > 0.0)) fail_value(key, "must be a number above 0");
        return value.get<double>();
    }
    [[nodiscard]] bool flag(const std::string& key, bool absent) const {
        if (!has(key)) return absent;
        if (!json_.at(key).is_boolean()) fail_value(key, "must be true or false");
        return json_.at(key).get<bool>();
    }
    /// A key whose other values would change the mathematics of the model.
    void only(const std::string& key, const Json& supported) const {
        if (has(key) && json_.at(key) != supported) {
            fail_value(key, "not supported by mfsdp, which has " + supported.dump() + " only");
        }
    }
    /// A feature that published configurations mention in order to turn it off.
    void off(const std::string& key) const {
        if (!has(key)) return;
        const Json& value = json_.at(key);
        const bool is_off = value == Json(false) || (value.is_number() && value.get<double>() == 0.0);
        if (!is_off) fail_value(key, "not supported by mfsdp, which accepts null, false or 0");
    }

  private:
    static constexpr std::int64_t kLargestSize = 2'147'483'647;  // products of two stay inside int64
    static constexpr std::int64_t kMostBlocks = 65536;
    const Json& json_;
    const std::string& source_;
};

Json parse_object(const std::string& text, const std::string& source) {
    // The parser takes a zero byte for the end of its input and would not look at what follows.
    if (text.find('\0') != std::string::npos) throw DataError("data: " + source + ": contains a zero byte");
    Json json;
    try {
        json = Json::parse(text);
    } catch (const Json::exception& error) {  // a number beyond double's range is no parse_error
        throw DataError("data: " + source + ": not JSON: " + error.what());
    }
    if (!json.is_object()) throw DataError("data: " + source + ": must hold a JSON object");
    return json;
}

ModelFamily read_family(const Keys& keys) {
    if (!keys.has("model_type")) keys.fail("model_type", ": missing, must be \"gpt2\", \"llama\" or \"qwen3\"");
    for (const ModelFamily family : {ModelFamily::gpt2, ModelFamily::llama, ModelFamily::qwen3}) {
        if (keys.at("model_type") == name(family)) return family;
    }
    keys.fail_value("model_type", "not supported by mfsdp, which has \"gpt2\", \"llama\" and \"qwen3\"");
}

ModelConfig read_gpt2(const Keys& keys) {
    ModelConfig config;
    config.family = ModelFamily::gpt2;
    config.vocab_size = keys.size("vocab_size");
    config.hidden_size = keys.size("n_embd");
    config.num_hidden_layers = keys.blocks("n_layer");
    config.num_attention_heads = keys.size("n_head");
    config.num_key_value_heads = config.num_attention_heads;
    if (config.hidden_size % config.num_attention_heads != 0) {
        keys.fail_value("n_embd", "must be a multiple of n_head = " + std::to_string(config.num_attention_heads));
    }
    config.head_dim = config.hidden_size / config.num_attention_heads;
    config.intermediate_size = keys.size_or("n_inner", 4 * config.hidden_size);
    config.max_position_embeddings = keys.size("n_positions");
    config.norm_epsilon = keys.positive("layer_norm_epsilon", 1e-5);
    config.initializer_range = keys.positive("initializer_range", 0.02);
    config.attention_bias = true;
    config.mlp_bias = true;
    config.tie_word_embeddings = keys.flag("tie_word_embeddings", true);

    keys.only("activation_function", "gelu_new");
    keys.only("scale_attn_weights", true);
    for (const char* key :
         {"attn_pdrop", "embd_pdrop", "resid_pdrop", "scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
        keys.off(key);
    }
    return config;
}

/// rope_theta stands at the top level, or in newer files inside rope_parameters of type default.
double read_rope_theta(const Keys& keys, const std::string& source) {
    if (!keys.has("rope_parameters")) return keys.positive("rope_theta", 10000.0);
    if (!keys.at("rope_parameters").is_object()) keys.fail_value("rope_parameters", "must be an object");
    const Keys inner(keys.at("rope_parameters"), source);
    inner.only("rope_type", "default");
    inner.only("partial_rotary_factor", 1.0);
    return inner.positive("rope_theta", keys.positive("rope_theta", 10000.0));
}

/// Newer files name the kind of every layer.
void require_full_attention(const Keys& keys) {
    if (!keys.has("layer_types")) return;
    const Json& types = keys.at("layer_types");
    const auto is_full = [](const Json& type) { return type == "full_attention"; };
    if (!types.is_array() || !std::all_of(types.begin(), types.end(), is_full)) {
        keys.fail_value("layer_types", "not supported by mfsdp, which has \"full_attention\" only");
    }
}

/// llama and qwen3, which differ in little but the defaults that Hugging Face takes for absent keys: qwen3's are those
/// of one size of model, so files have to say them.
ModelConfig read_llama(const Keys& keys, const std::string& source, ModelFamily family) {
    const bool qwen3 = family == ModelFamily::qwen3;
    ModelConfig config;
    config.family = family;
    config.vocab_size = keys.size("vocab_size");
    config.hidden_size = keys.size("hidden_size");
    config.num_hidden_layers = keys.blocks("num_hidden_layers");
    config.num_attention_heads = keys.size("num_attention_heads");
    config.num_key_value_heads =
        qwen3 ? keys.size("num_key_value_heads") : keys.size_or("num_key_value_heads", config.num_attention_heads);
    if (config.num_attention_heads % config.num_key_value_heads != 0) {
        keys.fail_value("num_key_value_heads",
                        "must divide num_attention_heads = " + std::to_string(config.num_attention_heads));
    }
    if (!qwen3 && !keys.has("head_dim") && config.hidden_size % config.num_attention_heads != 0) {
        keys.fail_value("hidden_size", "must be a multiple of num_attention_heads = " +
                                           std::to_string(config.num_attention_heads) + ", or set head_dim");
    }
    config.head_dim =
        qwen3 ? keys.size("head_dim") : keys.size_or("head_dim", config.hidden_size / config.num_attention_heads);
    if (config.head_dim % 2 != 0) {
        keys.fail("head_dim", " = " + std::to_string(config.head_dim) + ": must be even, rotary positions turn pairs");
    }
    config.intermediate_size = keys.size("intermediate_size");
    config.max_position_embeddings = keys.size("max_position_embeddings");
    config.norm_epsilon = keys.positive("rms_norm_eps", 1e-6);
    config.rope_theta = read_rope_theta(keys, source);
    config.initializer_range = keys.positive("initializer_range", 0.02);
    config.attention_bias = keys.flag("attention_bias", false);
    if (qwen3) {
        keys.off("mlp_bias");
    } else {
        config.mlp_bias = keys.flag("mlp_bias", false);
    }
    config.tie_word_embeddings = keys.flag("tie_word_embeddings", false);

    keys.only("hidden_act", "silu");
    keys.only("partial_rotary_factor", 1.0);
    for (const char* key : {"rope_scaling", "sliding_window", "use_sliding_window", "attention_dropout"}) {
        keys.off(key);
    }
    require_full_attention(keys);
    return config;
}

}  // namespace

ModelConfig parse_huggingface_config(const std::string& text, const std::string& source) {
    const Json json = parse_object(text, source);
    const Keys keys(json, source);
    keys.off("quantization_config");
    const ModelFamily family = read_family(keys);
    return family == ModelFamily::gpt2 ? read_gpt2(keys) : read_llama(keys, source, family);
}

std::string huggingface_config(const ModelConfig& config, const std::string& bookkeeping, device::DType dtype) {
    MFSDP_ASSERT(dtype == device::DType::float32 || dtype == device::DType::bfloat16,
                 "weights are stored in float32 or bfloat16");
    Json json = parse_object(bookkeeping, "bookkeeping keys");
    if (config.family == ModelFamily::gpt2) {
        json["architectures"] = {"GPT2LMHeadModel"};
        json["model_type"] = "gpt2";
        json["vocab_size"] = config.vocab_size;
        json["n_embd"] = config.hidden_size;
        json["n_layer"] = config.num_hidden_layers;
        json["n_head"] = config.num_attention_heads;
        json["n_inner"] = config.intermediate_size;
        json["n_positions"] = config.max_position_embeddings;
        json["layer_norm_epsilon"] = config.norm_epsilon;
        json["activation_function"] = "gelu_new";
        for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) json[key] = 0.0;
    } else {
        const bool qwen3 = config.family == ModelFamily::qwen3;
        json["architectures"] = {qwen3 ? "Qwen3ForCausalLM" : "LlamaForCausalLM"};
        json["model_type"] = name(config.family);
        json["vocab_size"] = config.vocab_size;
        json["hidden_size"] = config.hidden_size;
        json["num_hidden_layers"] = config.num_hidden_layers;
        json["num_attention_heads"] = config.num_attention_heads;
        json["num_key_value_heads"] = config.num_key_value_heads;
        json["head_dim"] = config.head_dim;
        json["intermediate_size"] = config.intermediate_size;
        json["max_position_embeddings"] = config.max_position_embeddings;
        json["rms_norm_eps"] = config.norm_epsilon;
        json["rope_theta"] = config.rope_theta;
        json["hidden_act"] = "silu";
        json["attention_bias"] = config.attention_bias;
        if (!qwen3) json["mlp_bias"] = config.mlp_bias;
        json["attention_dropout"] = 0.0;
    }
    json["initializer_range"] = config.initializer_range;
    json["tie_word_embeddings"] = config.tie_word_embeddings;
    json["torch_dtype"] = device::name(dtype);
    return json.dump(2) + "\n";
}

}  // namespace mfsdp::model
