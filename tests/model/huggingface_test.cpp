#include "mfsdp/model/huggingface.h"

#include "mfsdp/base/error.h"
#include "mfsdp/model/safetensors_writer.h"

#include "support/catch.h"
#include "support/model_cases.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

#include <filesystem>

using namespace mfsdp;
using model::HuggingFaceReader;
using model::HuggingFaceWriter;
using model::ModelConfig;
using model::ModelSpec;
using test::message_of;
using test::TemporaryDirectory;

namespace {

const std::string kGolden = std::string(MFSDP_SOURCE_DIR) + "/tests/golden/models/";

std::string gpt2_config(const std::string& more = "") {
    return R"({"model_type": "gpt2", "vocab_size": 23, "n_embd": 15, "n_layer": 2, "n_head": 3, "n_positions": 9)" +
           more + "}";
}
std::string llama_config(const std::string& more = "") {
    return R"({"model_type": "llama", "vocab_size": 23, "hidden_size": 24, "num_hidden_layers": 2,
               "num_attention_heads": 4, "intermediate_size": 17, "max_position_embeddings": 16)" +
           more + "}";
}
std::string qwen3_config(const std::string& more = "") {
    return R"({"model_type": "qwen3", "vocab_size": 23, "hidden_size": 24, "num_hidden_layers": 2, "head_dim": 8,
               "num_key_value_heads": 2, "num_attention_heads": 4, "intermediate_size": 17,
               "max_position_embeddings": 16)" +
           more + "}";
}
ModelConfig parse(const std::string& text) { return model::parse_huggingface_config(text, "config.json"); }
std::string refusal(const std::string& text) {
    return message_of<DataError>([&] { static_cast<void>(parse(text)); });
}

void export_model(const std::string& directory, const ModelSpec& spec, const std::vector<std::vector<float>>& weights) {
    HuggingFaceWriter writer(directory, spec);
    for (std::size_t i = weights.size(); i-- > 0;) writer.write(spec.parameters[i], weights[i]);
    writer.finish();
}

std::vector<std::vector<float>> import_model(const std::string& directory, const ModelSpec& spec) {
    const HuggingFaceReader reader(directory);
    std::vector<std::vector<float>> weights;
    for (const model::ParameterSpec& parameter : spec.parameters) weights.push_back(reader.read(parameter));
    return weights;
}

/// A directory with a tiny gpt2 config and the tensors given, filled with ones.
void write_model(const TemporaryDirectory& directory, const std::string& config,
                 const std::vector<model::SafetensorsTensor>& tensors, const std::string& special = "") {
    test::write_file(directory / "config.json", config);
    model::SafetensorsWriter writer(directory / "model.safetensors", tensors);
    for (const model::SafetensorsTensor& tensor : tensors) {
        std::int64_t count = 1;
        for (const std::int64_t size : tensor.shape) count *= size;
        writer.write(tensor.name,
                     std::vector<float>(static_cast<std::size_t>(count), tensor.name == special ? 2.0F : 1.0F));
    }
    writer.finish();
}

std::vector<model::SafetensorsTensor> stored_gpt2(const std::string& prefix) {
    std::vector<model::SafetensorsTensor> tensors;
    for (const model::ParameterSpec& parameter : model::describe_model(parse(gpt2_config())).parameters) {
        std::vector<std::int64_t> shape = parameter.shape;
        if (parameter.stored_transposed) std::swap(shape[0], shape[1]);
        tensors.push_back({prefix + parameter.name.substr(std::string("transformer.").size()), shape});
    }
    return tensors;
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
    CHECK(parse(qwen3_config(R"(, "attention_bias": true, "layer_types": ["full_attention", "full_attention"])"))
              .attention_bias);
    CHECK(refusal(qwen3_config(R"(, "head_dim": null)")) ==
          "data: config.json: head_dim: missing, must be an integer of at least 1");
    CHECK(refusal(qwen3_config(R"(, "num_key_value_heads": null)")).find("num_key_value_heads: missing") !=
          std::string::npos);
    CHECK(
        refusal(qwen3_config(R"(, "layer_types": ["sliding_attention"])")).find("layer_types = [\"sliding_attention") !=
        std::string::npos);
    CHECK(refusal(qwen3_config(R"(, "use_sliding_window": true)")).find("use_sliding_window") != std::string::npos);
    CHECK(refusal(qwen3_config(R"(, "mlp_bias": true)")).find("mlp_bias") != std::string::npos);
}

TEST_CASE("a config.json that this version cannot train is refused with file, key and value") {
    CHECK(refusal("{").find("data: config.json: not JSON") == 0);
    CHECK(refusal("[]") == "data: config.json: must hold a JSON object");
    CHECK(refusal(R"({"model_type": "qwen2"})") ==
          R"(data: config.json: model_type = "qwen2": not supported by mfsdp, which has "gpt2", "llama" and "qwen3")");
    CHECK(refusal(R"({"model_type": "gpt2"})") ==
          "data: config.json: vocab_size: missing, must be an integer of at least 1");
    CHECK(refusal(gpt2_config(R"(, "n_inner": 1.5)")).find("n_inner = 1.5: must be an integer") != std::string::npos);
    CHECK(refusal(gpt2_config(R"(, "n_inner": 18446744073709551615)")).find("n_inner") != std::string::npos);
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

TEST_CASE("export, import, export gives equal values and equal bytes") {
    for (const test::ModelCase& description : test::model_cases()) {
        const TemporaryDirectory directory;
        const ModelSpec spec = model::describe_model(description.config);
        const auto weights = test::random_weights(spec);
        export_model(directory / "first", spec, weights);
        const auto imported = import_model(directory / "first", spec);
        CHECK(imported == weights);
        export_model(directory / "second", spec, imported);
        for (const char* file : {"/config.json", "/model.safetensors"}) {
            const std::string first = test::read_file((directory / "first") + file);
            REQUIRE(!first.empty());
            CHECK(first == test::read_file((directory / "second") + file));
        }
        CHECK(!std::filesystem::exists(directory / "first.tmp"));
    }
}

TEST_CASE("importing and exporting a published file gives its bytes back") {
    for (const char* name : {"gpt2_tiny", "llama_tied", "llama_tiny_gqa", "qwen3_tiny"}) {
        const TemporaryDirectory directory;
        const HuggingFaceReader reader(kGolden + name);
        const ModelSpec spec = model::describe_model(reader.config());
        export_model(directory / "model", spec, import_model(kGolden + name, spec));
        CHECK(test::read_file(directory / "model/model.safetensors") ==
              test::read_file(kGolden + name + "/model.safetensors"));
    }
}

TEST_CASE("Conv1D matrices are turned on the way in") {
    const TemporaryDirectory directory;
    test::write_file(directory / "config.json", gpt2_config());
    const auto tensors = stored_gpt2("transformer.");
    model::SafetensorsWriter writer(directory / "model.safetensors", tensors);
    for (const model::SafetensorsTensor& tensor : tensors) {
        const std::int64_t columns = tensor.shape.size() < 2 ? 1 : tensor.shape[1];
        std::vector<float> values(static_cast<std::size_t>(tensor.shape[0] * columns));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
        writer.write(tensor.name, values);
    }
    writer.finish();
    const HuggingFaceReader reader(directory.path());
    for (const model::ParameterSpec& parameter : model::describe_model(reader.config()).parameters) {
        const std::vector<float> values = reader.read(parameter);
        const std::int64_t row = parameter.rows() - 1;  // the last row and the second column, or the second element
        const std::int64_t expected =
            parameter.stored_transposed ? parameter.rows() + row : row * parameter.columns() + 1;
        CHECK(values.at(static_cast<std::size_t>(row * parameter.columns() + 1)) == static_cast<float>(expected));
    }
}

TEST_CASE("published gpt2 files without the prefix and with mask buffers are read") {
    const TemporaryDirectory directory;
    auto tensors = stored_gpt2("");
    tensors.push_back({"h.0.attn.bias", {1, 1, 9, 9}});
    tensors.push_back({"h.0.attn.masked_bias", {}});
    write_model(directory, gpt2_config(), tensors);
    const HuggingFaceReader reader(directory.path());
    const auto values = reader.read(model::describe_model(reader.config()).parameters.at(3));
    CHECK(values == std::vector<float>(15, 1.0F));
}

TEST_CASE("a stored head of a tied model must equal the embedding") {
    const TemporaryDirectory equal;
    auto tensors = stored_gpt2("transformer.");
    tensors.push_back({"lm_head.weight", {23, 15}});
    write_model(equal, gpt2_config(), tensors);
    CHECK_NOTHROW(HuggingFaceReader(equal.path()));
    const TemporaryDirectory different;
    write_model(different, gpt2_config(), tensors, "lm_head.weight");
    CHECK(message_of<DataError>([&] {
              HuggingFaceReader reader(different.path());
          }).find("differs from the embedding") != std::string::npos);
}

TEST_CASE("tensors that are missing, unknown or of another shape are refused by name") {
    const auto refusal_of = [](const std::vector<model::SafetensorsTensor>& tensors, const std::string& config) {
        const TemporaryDirectory directory;
        write_model(directory, config, tensors);
        return message_of<DataError>([&] {
            const HuggingFaceReader reader(directory.path());
            for (const auto& parameter : model::describe_model(reader.config()).parameters) {
                static_cast<void>(reader.read(parameter));
            }
        });
    };
    auto tensors = stored_gpt2("transformer.");
    CHECK(refusal_of(tensors, gpt2_config()) == "<no exception>");
    CHECK(refusal_of(tensors, gpt2_config(R"(, "tie_word_embeddings": false)")).find("lm_head.weight is missing") !=
          std::string::npos);
    tensors.push_back({"transformer.extra", {2}});
    CHECK(refusal_of(tensors, gpt2_config()).find("transformer.extra is not part of a gpt2 model") !=
          std::string::npos);
    tensors.pop_back();
    tensors.back().shape = {14};
    CHECK(refusal_of(tensors, gpt2_config()).find(tensors.back().name + ": [14], expected [15]") != std::string::npos);
    tensors.pop_back();
    CHECK(refusal_of(tensors, gpt2_config()).find("is missing") != std::string::npos);
}

TEST_CASE("an interrupted export leaves nothing, and a finished one replaces only an earlier export") {
    const TemporaryDirectory directory;
    const ModelSpec spec = model::describe_model(test::gpt2_case("", true).config);
    const auto weights = test::random_weights(spec);
    {
        HuggingFaceWriter writer(directory / "model", spec);
        writer.write(spec.parameters[0], weights[0]);
        CHECK_THROWS_AS(writer.finish(), InternalError);
        CHECK_THROWS_AS(writer.write(spec.parameters[1], weights[0]), InternalError);
    }
    CHECK(std::filesystem::is_empty(directory.path()));

    export_model(directory / "model", spec, weights);
    export_model(directory / "model/", spec, weights);
    CHECK(import_model(directory / "model", spec) == weights);
    CHECK(!std::filesystem::exists(directory / "model.old"));

    test::write_file(directory / "model/notes.txt", "mine");
    CHECK(message_of<CheckpointError>([&] {
              HuggingFaceWriter writer(directory / "model", spec);
          }).find("holds notes.txt") != std::string::npos);
    CHECK(test::read_file(directory / "model/notes.txt") == "mine");
}
