#pragma once

#include "mfsdp/model/huggingface.h"
#include "mfsdp/model/safetensors.h"

#include "support/model_cases.h"
#include "support/temporary_directory.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace mfsdp::test {

/// A model of tests/golden/models: weights, tokens, and what a trainer must find, computed elsewhere in float64.
struct GoldenCase {
    std::string name;
    model::ModelSpec spec;
    std::vector<std::vector<float>> weights;  ///< in memory orientation
    Tokens tokens;
    std::int64_t rows = 0;
    std::int64_t length = 0;
    std::vector<float> logits;
    std::vector<std::vector<float>> gradients;  ///< of the mean loss, as stored
    nlohmann::json expected;                    ///< expected.json

    [[nodiscard]] double loss() const { return expected.at("loss").get<double>(); }

    /// |a - e| / |e| of one parameter's gradient, `sum` being that of the sum of the losses, in memory orientation.
    [[nodiscard]] double gradient_distance(std::size_t index, const std::vector<float>& sum,
                                           std::int64_t targets) const {
        const model::ParameterSpec& parameter = spec.parameters.at(index);
        const std::vector<float>& stored = gradients.at(index);
        if (sum.size() != stored.size()) throw std::runtime_error("a gradient is as large as its parameter");
        double difference = 0.0;
        double norm = 0.0;
        for (std::int64_t row = 0; row < parameter.rows(); ++row) {
            for (std::int64_t column = 0; column < parameter.columns(); ++column) {
                const std::int64_t at = row * parameter.columns() + column;
                const std::int64_t place = parameter.stored_transposed ? column * parameter.rows() + row : at;
                const double a = sum[static_cast<std::size_t>(at)] / static_cast<double>(targets);
                const double e = stored[static_cast<std::size_t>(place)];
                difference += (a - e) * (a - e);
                norm += e * e;
            }
        }
        return std::sqrt(difference / norm);
    }
};

inline GoldenCase read_golden_case(const std::filesystem::path& directory) {
    const auto read_json = [&](const char* name) {
        return nlohmann::json::parse(read_file((directory / name).string()));
    };
    const auto flat = [](const nlohmann::json& rows) {
        std::vector<std::int32_t> values;
        for (const auto& row : rows) {
            for (const auto& value : row) values.push_back(value.get<std::int32_t>());
        }
        return values;
    };
    const model::SafetensorsFile tensors((directory / "expected.safetensors").string());
    const auto tensor = [&](const std::string& name) {
        std::vector<float> values(static_cast<std::size_t>(tensors.entry(name).elements()));
        if (values.empty()) throw std::runtime_error("an expected tensor has values: " + name);
        tensors.read_float32(name, values);
        return values;
    };
    const model::HuggingFaceReader reader(directory);
    const nlohmann::json tokens = read_json("tokens.json");
    GoldenCase result;
    result.name = directory.filename().string();
    result.spec = model::describe_model(reader.config());
    result.tokens = {flat(tokens.at("input")), flat(tokens.at("target"))};
    result.rows = static_cast<std::int64_t>(tokens.at("input").size());
    result.length = static_cast<std::int64_t>(tokens.at("input").at(0).size());
    result.logits = tensor("logits");
    result.expected = read_json("expected.json");
    for (const model::ParameterSpec& parameter : result.spec.parameters) {
        result.weights.push_back(reader.read(parameter));
        result.gradients.push_back(tensor("grad." + parameter.name));
    }
    return result;
}

/// Every directory with a config.json in <golden>/models, in the order of their names; all that the project has.
inline std::vector<GoldenCase> golden_cases() {
    const char* from_environment = std::getenv("MFSDP_GOLDEN_DIR");
    const std::filesystem::path root =
        from_environment != nullptr ? from_environment : MFSDP_SOURCE_DIR "/tests/golden";
    std::vector<std::filesystem::path> directories;
    for (const auto& entry : std::filesystem::directory_iterator(root / "models")) {
        if (std::filesystem::exists(entry.path() / "config.json")) directories.push_back(entry.path());
    }
    std::sort(directories.begin(), directories.end());
    std::vector<GoldenCase> cases;
    for (const auto& directory : directories) cases.push_back(read_golden_case(directory));
    for (const char* name : {"gpt2_tiny", "gpt2_masked", "llama_tiny_gqa", "llama_tied", "qwen3_tiny"}) {
        const auto is_it = [&](const GoldenCase& golden) { return golden.name == name; };
        if (std::none_of(cases.begin(), cases.end(), is_it)) {
            throw std::runtime_error(std::string("the golden model ").append(name).append(" is there"));
        }
    }
    return cases;
}

}  // namespace mfsdp::test
