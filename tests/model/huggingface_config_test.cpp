#include "mfsdp/base/error.h"
#include "mfsdp/model/huggingface.h"

#include "model/huggingface_files.h"
#include "support/catch.h"
#include "support/model_cases.h"
#include "support/throws.h"

#include <nlohmann/json.hpp>

using namespace mfsdp;
using model::ModelConfig;
using test::gpt2_config;
using test::llama_config;
using test::message_of;
using test::qwen3_config;

namespace {

const std::string kHeads = R"(, "head_dim": 8, "num_key_value_heads": 2)";

ModelConfig parse(const std::string& text) { return test::parse_config(text); }
std::string refusal(const std::string& text) {
    return message_of<DataError>([&] { static_cast<void>(parse(text)); });
}

}  // namespace

TEST_CASE("a gpt2 config.json fills every field, with the defaults of its family") {
    const ModelConfig config = parse(gpt2_config());
    CHECK(config.family == model::ModelFamily::gpt2);
    CHECK(config.vocab_size == 23);
    CHECK(config.hidden_size == 15);
    CHECK(config.num_hidden_layers == 2);
    CHECK(config.num_attention_heads == 3);
    CHECK(config.num_key_value_heads == 3);
    CHECK(config.head_dim == 5);
    CHECK(config.intermediate_size == 60);
    CHECK(config.max_position_embeddings == 9);
    CHECK(config.norm_epsilon == 1e-5);
    CHECK(config.initializer_range == 0.02);
    CHECK(config.attention_bias);
    CHECK(config.mlp_bias);
    CHECK(config.tie_word_embeddings);
    CHECK(parse(gpt2_config(R"(, "n_inner": 7, "tie_word_embeddings": false)")).intermediate_size == 7);
}

TEST_CASE("a llama config.json fills every field, with the defaults of its family") {
    const ModelConfig config = parse(llama_config());
    CHECK(config.family == model::ModelFamily::llama);
    CHECK(config.num_key_value_heads == 4);
    CHECK(config.head_dim == 6);
    CHECK(config.norm_epsilon == 1e-6);
    CHECK(config.rope_theta == 10000.0);
    CHECK(!config.attention_bias);
    CHECK(!config.tie_word_embeddings);
    const ModelConfig other = parse(llama_config(
        R"(, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-5, "attention_bias": true, "mlp_bias": true,
             "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "rope_scaling": null)"));
    CHECK(other.num_key_value_heads == 2);
    CHECK(other.head_dim == 8);
    CHECK(other.norm_epsilon == 1e-5);
    CHECK(other.rope_theta == 500000.0);
    CHECK(other.attention_bias);
    CHECK(other.mlp_bias);
}

TEST_CASE("a qwen3 config.json fills every field and says what has no default that fits every size") {
    const ModelConfig config = parse(qwen3_config());
    CHECK(config.family == model::ModelFamily::qwen3);
    CHECK(config.num_key_value_heads == 2);
    CHECK(config.head_dim == 8);
    CHECK(config.norm_epsilon == 1e-6);
    CHECK(config.rope_theta == 10000.0);
    CHECK(!config.attention_bias);
    CHECK(!config.mlp_bias);
    CHECK(!config.tie_word_embeddings);
    CHECK(
        parse(qwen3_config(kHeads + R"(, "attention_bias": true, "layer_types": ["full_attention", "full_attention"])"))
            .attention_bias);
    CHECK(refusal(qwen3_config(R"(, "num_key_value_heads": 2)")) ==
          "data: config.json: head_dim: missing, must be an integer of at least 1");
    CHECK(
        refusal(qwen3_config(R"(, "head_dim": 8, "num_key_value_heads": null)")).find("num_key_value_heads: missing") !=
        std::string::npos);
    CHECK(refusal(qwen3_config(kHeads + R"(, "layer_types": ["sliding_attention"])"))
              .find("layer_types = [\"sliding_attention") != std::string::npos);
    CHECK(refusal(qwen3_config(kHeads + R"(, "use_sliding_window": true)")).find("use_sliding_window") !=
          std::string::npos);
    CHECK(refusal(qwen3_config(kHeads + R"(, "mlp_bias": true)")).find("mlp_bias") != std::string::npos);
}

TEST_CASE("a config.json that this version cannot train is refused with file, key and value") {
    CHECK(refusal("{").find("data: config.json: not JSON") == 0);
    CHECK(refusal(R"({"vocab_size": 1e999})").find("data: config.json: not JSON") == 0);  // beyond double's range
    CHECK(refusal(gpt2_config() + std::string(1, '\0') + "}") == "data: config.json: contains a zero byte");
    CHECK(refusal("[]") == "data: config.json: must hold a JSON object");
    CHECK(refusal(R"({"model_type": "qwen2"})") ==
          R"(data: config.json: model_type = "qwen2": not supported by mfsdp, which has "gpt2", "llama" and "qwen3")");
    CHECK(refusal(R"({"model_type": "gpt2"})") ==
          "data: config.json: vocab_size: missing, must be an integer of at least 1");
    CHECK(refusal(gpt2_config(R"(, "n_inner": 1.5)")).find("n_inner = 1.5: must be an integer") != std::string::npos);
    CHECK(refusal(gpt2_config(R"(, "n_inner": 18446744073709551615)")).find("n_inner") != std::string::npos);
    CHECK(refusal(R"({"model_type": "gpt2", "vocab_size": 23, "n_embd": 15, "n_layer": 65537})") ==
          "data: config.json: n_layer = 65537: must be an integer from 1 to 65536");
    CHECK(refusal(R"({"model_type": "gpt2", "vocab_size": 2147483648})") ==
          "data: config.json: vocab_size = 2147483648: must be an integer from 1 to 2147483647");
    CHECK(refusal(gpt2_config(R"(, "resid_pdrop": 0.1)")) ==
          "data: config.json: resid_pdrop = 0.1: not supported by mfsdp, which accepts null, false or 0");
    CHECK(refusal(gpt2_config(R"(, "activation_function": "relu")")).find("activation_function = \"relu\"") !=
          std::string::npos);
    CHECK(refusal(gpt2_config(R"(, "layer_norm_epsilon": 0)")).find("must be a number above 0") != std::string::npos);
    CHECK(refusal(gpt2_config(R"(, "tie_word_embeddings": 1)")).find("must be true or false") != std::string::npos);
    CHECK(refusal(llama_config(R"(, "rope_scaling": {"factor": 8.0})")).find("rope_scaling") != std::string::npos);
    CHECK(refusal(llama_config(R"(, "num_key_value_heads": 3)")).find("must divide num_attention_heads = 4") !=
          std::string::npos);
    CHECK(refusal(llama_config(R"(, "head_dim": 5)")).find("must be even") != std::string::npos);
}

TEST_CASE("keys that do not concern the model are kept, those that do are the model's, and the type is the file's") {
    ModelConfig config = test::gpt2_case("", true).config;
    const auto written = nlohmann::json::parse(model::huggingface_config(
        config, R"({"n_ctx": 1024, "eos_token_id": 50256, "task_specific_params": {"a": [1, 2]}, "n_embd": 99,
                    "torch_dtype": "float16", "architectures": ["Other"]})",
        device::DType::bfloat16));
    CHECK(written["n_ctx"] == 1024);
    CHECK(written["eos_token_id"] == 50256);
    CHECK(written["task_specific_params"]["a"][1] == 2);
    CHECK(written["n_embd"] == 15);
    CHECK(written["torch_dtype"] == "bfloat16");
    CHECK(written["architectures"] == nlohmann::json::array({"GPT2LMHeadModel"}));
    config.padded_vocab_size = 128;
    CHECK(nlohmann::json::parse(model::huggingface_config(config))["vocab_size"] == 23);
    CHECK(nlohmann::json::parse(model::huggingface_config(config))["torch_dtype"] == "float32");
    const ModelConfig qwen3 = test::qwen3_case("", false).config;
    CHECK(nlohmann::json::parse(model::huggingface_config(qwen3))["architectures"][0] == "Qwen3ForCausalLM");
    CHECK_THROWS_AS(model::huggingface_config(config, "{}", device::DType::float16), InternalError);
}

TEST_CASE("the config.json that is written reads back as the same model") {
    for (const test::ModelCase& description : test::model_cases()) {
        const std::string text = model::huggingface_config(description.config);
        const ModelConfig read = parse(text);
        CHECK(model::huggingface_config(read) == text);
        CHECK(read.family == description.config.family);
        CHECK(read.head_dim == description.config.head_dim);
        CHECK(read.norm_epsilon == description.config.norm_epsilon);
        CHECK(read.num_key_value_heads == description.config.num_key_value_heads);
        CHECK(read.tie_word_embeddings == description.config.tie_word_embeddings);
        CHECK(read.attention_bias == description.config.attention_bias);
    }
}
