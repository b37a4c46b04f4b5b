#include "mfsdp/base/error.h"
#include "mfsdp/model/huggingface.h"
#include "mfsdp/model/safetensors.h"

#include "model/huggingface_files.h"
#include "support/catch.h"
#include "support/model_cases.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <nlohmann/json.hpp>

using namespace mfsdp;
using model::HuggingFaceReader;
using model::HuggingFaceWriter;
using model::ModelSpec;
using test::export_model;
using test::import_model;
using test::message_of;
using test::TemporaryDirectory;

namespace {

const std::string kGolden = std::string(MFSDP_SOURCE_DIR) + "/tests/golden/models/";

}  // namespace

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

TEST_CASE("bfloat16 exports hold the values rounded to nearest even and half the bytes") {
    const TemporaryDirectory directory;
    const ModelSpec spec = model::describe_model(test::qwen3_case("", false).config);
    auto weights = test::random_weights(spec);
    weights[0][0] = 1.00390625F;  // halfway between 1 and 1.0078125: to the even one
    weights[0][1] = 1.01171875F;  // halfway between 1.0078125 and 1.015625
    weights[0][2] = 1.00390637F;  // just above halfway
    export_model(directory / "model", spec, weights, "{}", device::DType::bfloat16);
    const auto imported = import_model(directory / "model", spec);
    CHECK(imported[0][0] == 1.0F);
    CHECK(imported[0][1] == 1.015625F);
    CHECK(imported[0][2] == 1.0078125F);
    for (std::size_t i = 0; i < weights.size(); ++i) {
        for (std::size_t k = 0; k < weights[i].size(); ++k) {
            REQUIRE(std::abs(imported[i][k] - weights[i][k]) <= std::abs(weights[i][k]) / 256.0F);
        }
    }
    const model::SafetensorsFile file(directory / "model/model.safetensors");
    CHECK(file.entry("model.norm.weight").dtype == "BF16");
    CHECK(file.entries().back().byte_end - file.entries().front().byte_begin == 2 * spec.parameter_count());
    CHECK(nlohmann::json::parse(test::read_file(directory / "model/config.json"))["torch_dtype"] == "bfloat16");

    export_model(directory / "again", spec, imported, "{}", device::DType::bfloat16);
    CHECK(test::read_file(directory / "again/model.safetensors") ==
          test::read_file(directory / "model/model.safetensors"));
}

TEST_CASE("padding rows are not exported and are zero when read") {
    for (const bool tied : {true, false}) {
        const TemporaryDirectory directory;
        test::ModelCase description = test::llama_case("", 2, false, tied);
        const ModelSpec plain = model::describe_model(description.config);
        description.config.padded_vocab_size = 32;
        const ModelSpec padded = model::describe_model(description.config);
        const auto weights = test::random_weights(padded);
        export_model(directory / "padded", padded, weights);
        const auto imported = import_model(directory / "padded", plain);
        CHECK(imported[0] == std::vector<float>(weights[0].begin(), weights[0].begin() + 23 * 13));
        export_model(directory / "plain", plain, imported);
        for (const char* file : {"/config.json", "/model.safetensors"}) {
            CHECK(test::read_file((directory / "plain") + file) == test::read_file((directory / "padded") + file));
        }
        auto expected = weights;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            if (padded.parameters[i].padding_rows == 0) continue;
            std::fill(expected[i].begin() + 23 * 13, expected[i].end(), 0.0F);
        }
        CHECK(import_model(directory / "padded", padded) == expected);
    }
}

TEST_CASE("an export with bookkeeping keeps foreign keys, and the model's own win") {
    const TemporaryDirectory directory;
    const ModelSpec spec = model::describe_model(test::gpt2_case("", true).config);
    export_model(directory / "model", spec, test::random_weights(spec), R"({"n_ctx": 24, "n_layer": 77})");
    const auto config = nlohmann::json::parse(test::read_file(directory / "model/config.json"));
    CHECK(config["n_ctx"] == 24);
    CHECK(config["n_layer"] == 2);
    CHECK(HuggingFaceReader(directory / "model").config().num_hidden_layers == 2);
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
