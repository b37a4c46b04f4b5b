// The whole training step - engine, stores, schedules, agreement - against losses, norms and weights that an oracle in
// double precision has computed. The other tests of bits compare runs of this program with each other; a wrong scale
// would be wrong in all of them.

#include "mfsdp/model/huggingface.h"

#include "optim/golden_support.h"
#include "support/catch.h"
#include "support/cuda_devices.h"
#include "support/training_run.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>

using namespace mfsdp;
using nlohmann::json;
using runtime::Strategy;

namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

struct Trajectory {
    explicit Trajectory(const std::string& name)
        : file(optim::test::read_json(optim::test::golden_directory() / "trajectories" / (name + ".json"))),
          model(optim::test::golden_directory() / "models" / file.at("model").get<std::string>()),
          tokens(file.at("tokens").get<std::vector<std::int32_t>>()),
          sequence_length(file.at("seq_len")),
          batch_size(file.at("global_batch_size")),
          steps(file.at("steps")) {}
    json file;
    model::HuggingFaceReader model;
    std::vector<std::int32_t> tokens;
    std::int64_t sequence_length, batch_size, steps;
};

const std::vector<model::RowBlock> kWhole;

/// Gives every parameter of the plan the optimizer and rates of its group.
void take_groups(runtime::RunPlan& run, const json& variant) {
    std::size_t taken = 0;
    for (const json& group : variant.at("groups")) {
        optim::test::Hyperparameters values(group.at("hyperparameters"));
        runtime::ParameterRates rates;
        const auto take = [&](const auto& rated) {
            rates = {rated.learning_rate, rated.weight_decay};
            return rated.options;
        };
        if (group.at("optimizer") == "muon") {
            run.engine.optimizer.matrix = optim::make_muon(take(optim::test::take_muon(values)));
            const bool split = group.contains("row_blocks") && !group.at("row_blocks").empty();
            if (!split) std::fill(run.engine.optimizer.blocks.begin(), run.engine.optimizer.blocks.end(), kWhole);
        } else {
            run.engine.optimizer.element = take(optim::test::take_adamw(values));
        }
        for (const json& name : group.at("parameters")) {
            for (std::size_t i = 0; i < run.spec.parameters.size(); ++i) {
                if (run.spec.parameters[i].name != name.get<std::string>()) continue;
                REQUIRE((run.roles[i] == optim::Role::matrix) == (group.at("optimizer") == "muon"));
                run.engine.optimizer.rates[i] = rates;
                ++taken;
            }
        }
    }
    REQUIRE(taken == run.spec.parameters.size());
}

struct Outcome {
    std::vector<double> losses, norms;
    std::vector<std::vector<float>> weights;
};

std::unique_ptr<device::Device> make_cpu() { return device::make_cpu_device({}); }

/// On one rank wherever `make_device` says, on several on the CPU.
Outcome train(const Trajectory& trajectory, const json& variant, int ranks, Strategy strategy, std::int64_t rows,
              const test::MakeDevice& make_device = make_cpu) {
    test::TrainingCase c;
    c.model = trajectory.model.config();
    c.ranks = ranks;
    c.strategy = strategy;
    c.sequence_length = trajectory.sequence_length;
    c.micro_batch_size = rows;
    c.micro_batches = trajectory.batch_size / rows;
    c.clip_grad = variant.at("clip_grad").is_null() ? 0.0 : variant.at("clip_grad").get<double>();
    const json& groups = variant.at("groups");
    c.use_matrix_optimizer =
        std::any_of(groups.begin(), groups.end(), [](const json& group) { return group.at("optimizer") == "muon"; });
    runtime::RunPlan run = test::training_plan(c);
    take_groups(run, variant);

    Outcome outcome;
    comm::ThreadCluster cluster(ranks);
    cluster.run([&](comm::Communicator& communicator) {
        test::RankRun rank_run(run, communicator, make_device());
        runtime::Engine& engine = rank_run.engine;
        engine.weights().initialise(1);
        engine.weights().load(
            [&](std::int64_t parameter, std::int64_t row_begin, std::int64_t row_count, std::span<float> values) {
                const model::ParameterSpec& spec = run.spec.parameters[at(parameter)];
                const std::vector<float> whole = trajectory.model.read(spec);
                std::copy_n(whole.begin() + row_begin * spec.columns(), row_count * spec.columns(), values.begin());
            });
        const std::int64_t count = rows * trajectory.sequence_length;
        for (std::int64_t step = 0; step < trajectory.steps; ++step) {
            const runtime::StepResult result = engine.step(
                step + 1, 1.0, [&](std::int64_t m, std::span<std::int32_t> in, std::span<std::int32_t> out) {
                    const std::int64_t begin = step * trajectory.batch_size * trajectory.sequence_length + m * count;
                    std::copy_n(trajectory.tokens.begin() + begin, count, in.begin());
                    std::copy_n(trajectory.tokens.begin() + begin + 1, count, out.begin());
                });
            if (communicator.rank() != 0) continue;
            outcome.losses.push_back(result.loss);
            outcome.norms.push_back(result.grad_norm);
        }
        std::vector<std::vector<float>> weights = rank_run.collect();
        if (communicator.rank() == 0) outcome.weights = std::move(weights);
    });
    return outcome;
}

void check(const Trajectory& trajectory, const json& variant, const Outcome& outcome) {
    const json& tolerance = variant.at("float32").at("tolerance");
    REQUIRE(static_cast<std::int64_t>(outcome.losses.size()) == trajectory.steps);
    for (std::size_t step = 0; step < outcome.losses.size(); ++step) {
        INFO("step " << step);
        CHECK(std::abs(outcome.losses[step] - variant.at("loss").at(step).get<double>()) <=
              tolerance.at("loss_absolute").get<double>());
        const auto norm = variant.at("grad_norm").at(step).get<double>();
        CHECK(std::abs(outcome.norms[step] - norm) <= tolerance.at("grad_norm_relative").get<double>() * norm);
    }
    // The length of every weight that the file pins as a whole, as one number: its orientation does not matter.
    const model::ModelSpec spec = model::describe_model(trajectory.model.config());
    int compared = 0;
    for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
        const auto found = variant.at("final").find(spec.parameters[i].name);
        if (found == variant.at("final").end() || found->contains("elements")) continue;
        double squares = 0.0;
        for (const float value : outcome.weights[i]) squares += static_cast<double>(value) * static_cast<double>(value);
        const auto length = found->at("l2").get<double>();
        INFO(spec.parameters[i].name);
        CHECK(std::abs(std::sqrt(squares) - length) <= tolerance.at("l2_relative").get<double>() * length);
        ++compared;
    }
    CHECK(compared > 5);
}

}  // namespace

TEST_CASE("the engine follows the golden trajectories on one rank and on several") {
    int variants = 0;
    for (const std::string name : {"gpt2_tiny", "llama_tiny_gqa"}) {
        const Trajectory trajectory(name);
        for (const auto& [label, variant] : trajectory.file.at("variants").items()) {
            INFO(name << "/" << label);
            check(trajectory, variant, train(trajectory, variant, 1, Strategy::ddp, trajectory.batch_size));
            check(trajectory, variant, train(trajectory, variant, 3, Strategy::matrix_fsdp, 1));
            check(trajectory, variant, train(trajectory, variant, 2, Strategy::zero1_owner, 1));
            ++variants;
        }
    }
    CHECK(variants == 11);
}

TEST_CASE("the engine follows golden trajectories on the emulated CUDA device") {
    for (const test::MakeDevice& make : test::emulated_cuda_devices()) {
        for (const std::string name : {"gpt2_tiny", "llama_tiny_gqa"}) {
            const Trajectory trajectory(name);
            const auto first = trajectory.file.at("variants").items().begin();
            INFO(name << "/" << first.key());
            check(trajectory, first.value(), train(trajectory, first.value(), 1, Strategy::matrix_fsdp, 1, make));
        }
    }
}

TEST_CASE("the engine follows the golden trajectories on a GPU", "[cuda]") {
    for (const test::MakeDevice& make : test::gpu_devices()) {
        for (const std::string name : {"gpt2_tiny", "llama_tiny_gqa"}) {
            const Trajectory trajectory(name);
            for (const auto& [label, variant] : trajectory.file.at("variants").items()) {
                INFO(name << "/" << label);
                check(trajectory, variant,
                      train(trajectory, variant, 1, Strategy::matrix_fsdp, trajectory.batch_size, make));
                check(trajectory, variant, train(trajectory, variant, 1, Strategy::ddp, 1, make));
            }
        }
    }
}
