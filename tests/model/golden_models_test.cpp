#include "mfsdp/base/error.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/model/huggingface.h"
#include "mfsdp/model/safetensors.h"

#include "support/catch.h"
#include "support/single_rank.h"
#include "support/temporary_directory.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

using namespace mfsdp;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// Every directory with a config.json in <golden>/models, in the order of their names.
std::vector<fs::path> golden_cases() {
    const char* from_environment = std::getenv("MFSDP_GOLDEN_DIR");
    const fs::path root = from_environment != nullptr ? from_environment : MFSDP_SOURCE_DIR "/tests/golden";
    std::vector<fs::path> cases;
    for (const fs::directory_entry& entry : fs::directory_iterator(root / "models")) {
        if (fs::exists(entry.path() / "config.json")) cases.push_back(entry.path());
    }
    std::sort(cases.begin(), cases.end());
    return cases;
}

json read_json(const fs::path& path) { return json::parse(test::read_file(path.string())); }

std::vector<std::int32_t> flat(const json& rows) {
    std::vector<std::int32_t> values;
    for (const json& row : rows) {
        for (const json& value : row) values.push_back(value.get<std::int32_t>());
    }
    return values;
}

std::vector<float> expected_tensor(const model::SafetensorsFile& file, const std::string& name) {
    std::vector<float> values(static_cast<std::size_t>(file.entry(name).elements()));
    REQUIRE(!values.empty());
    file.read_float32(name, values);
    return values;
}

/// The gradient in memory orientation, as the mean over the targets, beside the expected one turned the same way.
void check_gradient(const model::ParameterSpec& parameter, const std::vector<float>& actual,
                    const std::vector<float>& expected, double targets, double tolerance, double& square_sum) {
    INFO(parameter.name);
    REQUIRE(actual.size() == expected.size());
    double difference = 0.0;
    double norm = 0.0;
    for (std::int64_t row = 0; row < parameter.rows(); ++row) {
        for (std::int64_t column = 0; column < parameter.columns(); ++column) {
            const std::int64_t index = row * parameter.columns() + column;
            const std::int64_t stored = parameter.stored_transposed ? column * parameter.rows() + row : index;
            const double a = actual[static_cast<std::size_t>(index)] / targets;
            const double e = expected[static_cast<std::size_t>(stored)];
            difference += (a - e) * (a - e);
            norm += e * e;
            square_sum += a * a;
        }
    }
    CHECK(std::sqrt(difference) <= tolerance * std::sqrt(norm));
}

void check_case(const fs::path& directory) {
    const json tokens = read_json(directory / "tokens.json");
    const json expected = read_json(directory / "expected.json");
    const json& tolerance = expected.at("float32").at("tolerance");
    const model::SafetensorsFile tensors((directory / "expected.safetensors").string());
    const model::HuggingFaceReader reader(directory);
    const model::ModelSpec spec = model::describe_model(reader.config());
    const auto rows = static_cast<std::int64_t>(tokens.at("input").size());
    const auto length = static_cast<std::int64_t>(tokens.at("input").at(0).size());

    const auto device = device::make_cpu_device({.threads = 2});
    test::SingleRank rank(*device, spec, {.batch_size = rows, .sequence_length = length});
    for (std::int64_t i = 0; i < rank.parameters(); ++i) {
        rank.load(i, reader.read(spec.parameters[static_cast<std::size_t>(i)]));
    }

    const std::vector<std::int32_t> inputs = flat(tokens.at("input"));
    const std::vector<float> logits = rank.logits(inputs);
    const std::vector<float> expected_logits = expected_tensor(tensors, "logits");
    REQUIRE(logits.size() == expected_logits.size());
    double worst = 0.0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(logits[i]) - expected_logits[i]));
    }
    CHECK(worst <= tolerance.at("logits_absolute").get<double>());

    const test::MicroBatchLoss loss = rank.run(inputs, flat(tokens.at("target")));
    const double expected_loss = expected.at("loss").get<double>();
    CHECK(loss.targets == expected.at("valid_targets").get<std::int64_t>());
    CHECK(std::abs(loss.mean() - expected_loss) <= tolerance.at("loss_relative").get<double>() * expected_loss);

    double square_sum = 0.0;
    for (std::int64_t i = 0; i < rank.parameters(); ++i) {
        const model::ParameterSpec& parameter = spec.parameters[static_cast<std::size_t>(i)];
        check_gradient(parameter, rank.read_gradient(i), expected_tensor(tensors, "grad." + parameter.name),
                       static_cast<double>(loss.targets), tolerance.at("grad_relative_l2").get<double>(), square_sum);
    }
    const double expected_norm = expected.at("grad_norm").get<double>();
    CHECK(std::abs(std::sqrt(square_sum) - expected_norm) <=
          tolerance.at("grad_norm_relative").get<double>() * expected_norm);
}

}  // namespace

TEST_CASE("golden models: logits, loss, gradients and their norm lie within the tolerances of every case") {
    std::set<std::string> compared;
    for (const fs::path& directory : golden_cases()) {
        const std::string name = directory.filename().string();
        INFO("golden model " << name);
        check_case(directory);
        compared.insert(name);
    }
    for (const char* name : {"gpt2_tiny", "gpt2_masked", "llama_tiny_gqa", "llama_tied", "qwen3_tiny"}) {
        INFO(name);
        CHECK(compared.contains(name));
    }
}
