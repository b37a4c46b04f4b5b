#include "mfsdp/device/cpu_device.h"
#include "mfsdp/model/huggingface.h"

#include "optim/golden_trainer.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <set>

using namespace mfsdp;
using namespace mfsdp::optim;
using namespace mfsdp::optim::test;

namespace {

using nlohmann::json;

/// One file of trajectories with the model it starts from.
struct Trajectory {
    json file;
    std::filesystem::path model_directory;
    std::int64_t sequence_length = 0, batch_size = 0, steps = 0;
    std::vector<std::int32_t> tokens;

    explicit Trajectory(const std::filesystem::path& path) : file(read_json(path)) {
        model_directory = golden_directory() / "models" / file.at("model").get<std::string>();
        sequence_length = file.at("seq_len").get<std::int64_t>();
        batch_size = file.at("global_batch_size").get<std::int64_t>();
        steps = file.at("steps").get<std::int64_t>();
        tokens = file.at("tokens").get<std::vector<std::int32_t>>();
        REQUIRE(static_cast<std::int64_t>(tokens.size()) == steps * batch_size * sequence_length + 1);
    }
    /// Inputs (shift 0) or targets (shift 1) of a step: rows follow each other in the stream without a gap.
    [[nodiscard]] std::vector<std::int32_t> batch(std::int64_t step, std::int64_t shift) const {
        const auto begin = tokens.begin() + (step * batch_size * sequence_length + shift);
        return {begin, begin + batch_size * sequence_length};
    }
};

/// Why this library cannot train a variant, if it cannot.
std::optional<std::string> unsupported(const Trajectory& trajectory, const json& variant) {
    const auto family = read_json(trajectory.model_directory / "config.json").at("model_type").get<std::string>();
    if (family != "gpt2" && family != "llama") return "model type " + family;
    const std::set<std::string> known{"clip_grad", "groups", "loss", "grad_norm", "loss_after", "final", "float32"};
    for (const auto& [key, value] : variant.items()) {
        if (!known.contains(key)) return "key " + key;
    }
    for (const json& group : variant.at("groups")) {
        const auto optimizer = group.at("optimizer").get<std::string>();
        if (optimizer != "muon" && optimizer != "adamw") return optimizer;
    }
    return std::nullopt;
}

/// Values as the file holds them: a Conv1D matrix is stored (in, out).
std::vector<float> stored(const model::ParameterSpec& parameter, const std::vector<float>& memory) {
    if (!parameter.stored_transposed) return memory;
    std::vector<float> result;
    for (std::int64_t c = 0; c < parameter.columns(); ++c) {
        for (std::int64_t r = 0; r < parameter.rows(); ++r) {
            result.push_back(memory[static_cast<std::size_t>(r * parameter.columns() + c)]);
        }
    }
    return result;
}

/// Compares sum, length and probe of a stored tensor.
void check_final(const json& want, const std::vector<float>& values, const json& tolerance) {
    json ranges = want.value("elements", json::array({json::array({0, values.size()})}));
    double sum = 0.0, squares = 0.0, probe = 0.0;
    for (const json& range : ranges) {
        for (auto i = range.at(0).get<std::size_t>(); i < range.at(1).get<std::size_t>(); ++i) {
            const auto value = static_cast<double>(values.at(i));
            sum += value;
            squares += value * value;
            probe += value * std::cos(static_cast<double>(i));
        }
    }
    const double length = want.at("l2").get<double>();
    REQUIRE(length > 0.0);
    CHECK(std::abs(std::sqrt(squares) - length) <= tolerance.at("l2_relative").get<double>() * length);
    const double limit = tolerance.at("sum_over_l2").get<double>() * length;
    CHECK(std::abs(sum - want.at("sum").get<double>()) <= limit);
    CHECK(std::abs(probe - want.at("probe").get<double>()) <= limit);
}

void check_finals(const json& finals, mfsdp::test::SingleRank& rank, const json& tolerance) {
    std::size_t compared = 0;
    for (std::int64_t i = 0; i < rank.parameters(); ++i) {
        const model::ParameterSpec& parameter = rank.spec().parameters[static_cast<std::size_t>(i)];
        if (!finals.contains(parameter.name)) continue;
        INFO(parameter.name);
        check_final(finals.at(parameter.name), stored(parameter, rank.read_weight(i)), tolerance);
        ++compared;
    }
    CHECK(compared == finals.size());
    CHECK(compared > 0);
}

/// A trainer of a variant with the weights that the trajectory starts from.
class VariantTrainer {
  public:
    VariantTrainer(const Trajectory& trajectory, const json& variant, std::int64_t micro_batch_rows)
        : reader_(trajectory.model_directory),
          spec_(model::describe_model(reader_.config())),
          device_(device::make_cpu_device({.threads = 2})),
          trainer_(*device_, spec_, variant, micro_batch_rows, trajectory.sequence_length) {
        for (std::int64_t i = 0; i < trainer_.rank().parameters(); ++i) {
            trainer_.rank().load(i, reader_.read(spec_.parameters[static_cast<std::size_t>(i)]));
        }
    }
    GoldenTrainer& trainer() { return trainer_; }

  private:
    model::HuggingFaceReader reader_;
    model::ModelSpec spec_;
    std::unique_ptr<device::Device> device_;
    GoldenTrainer trainer_;
};

void check_variant(const Trajectory& trajectory, const json& variant, std::int64_t micro_batch_rows) {
    VariantTrainer started(trajectory, variant, micro_batch_rows);
    GoldenTrainer& trainer = started.trainer();
    const json& tolerance = variant.at("float32").at("tolerance");
    const auto loss_tolerance = tolerance.at("loss_absolute").get<double>();
    REQUIRE(static_cast<std::int64_t>(variant.at("loss").size()) == trajectory.steps);
    REQUIRE(static_cast<std::int64_t>(variant.at("grad_norm").size()) == trajectory.steps);
    for (std::int64_t s = 0; s < trajectory.steps; ++s) {
        const StepReport report = trainer.step(trajectory.batch(s, 0), trajectory.batch(s, 1));
        const auto loss = variant.at("loss").at(static_cast<std::size_t>(s)).get<double>();
        const auto norm = variant.at("grad_norm").at(static_cast<std::size_t>(s)).get<double>();
        INFO("step " << s);
        CHECK(std::abs(report.loss - loss) <= loss_tolerance);
        CHECK(std::abs(report.gradient_norm - norm) <= tolerance.at("grad_norm_relative").get<double>() * norm);
    }
    const double loss_after = trainer.evaluate(trajectory.batch(0, 0), trajectory.batch(0, 1));
    CHECK(std::abs(loss_after - variant.at("loss_after").get<double>()) <= loss_tolerance);
    check_finals(variant.at("final"), trainer.rank(), tolerance);
}

std::vector<std::filesystem::path> trajectory_files() {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(golden_directory() / "trajectories")) {
        if (entry.path().extension() == ".json") paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

}  // namespace

TEST_CASE("golden trajectories: every variant is met, however its batch is cut into micro-batches", "[optim][golden]") {
    int run = 0, skipped = 0;
    for (const std::filesystem::path& path : trajectory_files()) {
        const Trajectory trajectory(path);
        for (const auto& [label, variant] : trajectory.file.at("variants").items()) {
            const std::string title = path.stem().string() + "/" + label;
            if (const auto reason = unsupported(trajectory, variant)) {
                std::cout << "golden trajectories: " << title << " skipped, not supported: " << *reason << '\n';
                ++skipped;
                continue;
            }
            for (const std::int64_t rows : std::set<std::int64_t>{1, 2, 4, trajectory.batch_size}) {
                INFO(title << ", micro-batches of " << rows << " rows");
                check_variant(trajectory, variant, rows);
            }
            ++run;
        }
    }
    std::cout << "golden trajectories: " << run << " variants run, " << skipped << " skipped\n";
    CHECK(run > 0);
}

TEST_CASE("golden trajectories: Muon in 16 bits and by the Gram variant stays near every loss", "[optim][golden]") {
    struct Form {
        std::string dtype, method;
        double loss_tolerance;  // the files' losses are 3 to 4.5, and the rate is high
    };
    const std::vector<Form> forms{
        {"float32", "gram", 1e-4}, {"bfloat16", "standard", 0.02}, {"float16", "gram", 0.005}};
    int run = 0;
    for (const std::filesystem::path& path : trajectory_files()) {
        const Trajectory trajectory(path);
        for (const auto& [label, original] : trajectory.file.at("variants").items()) {
            if (label.find("muon") == std::string::npos) continue;
            for (const Form& form : forms) {
                json variant = original;
                for (json& group : variant.at("groups")) {
                    if (group.at("optimizer") != "muon") continue;
                    group["hyperparameters"]["muon_ns_dtype"] = form.dtype;
                    group["hyperparameters"]["muon_ns_method"] = form.method;
                    ++run;
                }
                VariantTrainer started(trajectory, variant, trajectory.batch_size);
                double farthest = 0.0;
                for (std::int64_t s = 0; s < trajectory.steps; ++s) {
                    const double loss = started.trainer().step(trajectory.batch(s, 0), trajectory.batch(s, 1)).loss;
                    const auto want = variant.at("loss").at(static_cast<std::size_t>(s)).get<double>();
                    farthest = std::max(farthest, std::abs(loss - want));
                }
                INFO(path.stem().string() << "/" << label << " in " << form.dtype << ", " << form.method);
                CHECK(farthest < form.loss_tolerance);
                if (form.dtype != "float32") CHECK(farthest > 1e-5);  // it was another type indeed
            }
        }
    }
    CHECK(run >= 6);
}
