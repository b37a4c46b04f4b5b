// Validation, samples, health and pretrained weights as a user meets them: real processes, their lines and files.

#include "process/small_run.h"
#include "support/catch.h"

#include <string>
#include <vector>

using mfsdp::test::count_of;
using mfsdp::test::kTrain;
using mfsdp::test::ProcessResult;
using mfsdp::test::read_file;
using mfsdp::test::run_command;
using mfsdp::test::SmallRun;
using mfsdp::test::under_mpirun;
using nlohmann::json;

namespace {

std::vector<json> records(const SmallRun& run, const std::string& run_dir, const std::string& kind) {
    std::vector<json> result;
    std::ifstream file(run.path(run_dir) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
        json record = json::parse(line);
        if (record.at("kind") == kind) result.push_back(std::move(record));
    }
    return result;
}

std::vector<std::string> samples(const SmallRun& run, const std::string& run_dir) {
    std::vector<std::string> result;
    for (const json& record : records(run, run_dir, "event")) {
        if (record.at("event") == "sample") result.push_back(record.at("text"));
    }
    return result;
}

}  // namespace

TEST_CASE("validation, samples and health are the same on any ranks and leave the trajectory alone") {
    SmallRun run;
    mfsdp::test::write_file(run.path("valid.txt"), std::string(300, 'o') + " keeps it, the owner of row 3 keeps it");
    const ProcessResult plain = run_command(run.train("--set telemetry.run_dir=" + run.path("plain")));
    INFO(plain.output);
    REQUIRE(plain.exit_code == 0);
    run.document()["data"]["valid"] = {run.path("valid.txt")};
    run.document()["train"]["eval_interval"] = 4;
    run.document()["train"]["sample_interval"] = 5;
    run.document()["train"]["sample_tokens"] = 40;  // more than a sequence: the window moves
    run.document()["train"]["sample_prompt"] = "the owner";
    run.document()["telemetry"]["health_interval"] = 3;
    run.write();
    std::vector<std::string> losses, texts;
    for (const int ranks : {1, 2, 5}) {
        INFO("ranks " << ranks);
        const std::string name = "run" + std::to_string(ranks);
        const ProcessResult result =
            run_command(under_mpirun(ranks, run.train("--set threads=1 --set telemetry.run_dir=" + run.path(name))));
        INFO(result.output);
        REQUIRE(result.exit_code == 0);
        CHECK(run.trajectory(name) == run.trajectory("plain"));
        const std::vector<json> evaluations = records(run, name, "eval");
        REQUIRE(evaluations.size() == 2);  // after step 4 and at the end
        CHECK(evaluations[0].at("step") == 4);
        CHECK(evaluations[1].at("step") == 6);
        CHECK(evaluations[0].at("eval_targets") == (338 / 32) * 32);
        CHECK(evaluations[0].at("eval_loss") > evaluations[1].at("eval_loss"));
        CHECK(count_of(result.output, "validation loss") == 2);
        std::vector<std::string> seen;
        for (const json& record : evaluations) seen.push_back(record.at("eval_loss").dump());
        if (ranks == 1) losses = seen;
        CHECK(seen == losses);
        const std::vector<std::string> sampled = samples(run, name);
        REQUIRE(sampled.size() == 2);
        CHECK(sampled[0].substr(0, 9) == "the owner");
        if (ranks == 1) texts = sampled;
        CHECK(sampled == texts);
        const std::vector<json> health = records(run, name, "health");
        REQUIRE(health.size() == 2 * 8);  // steps 3 and 6, four matrices in each of two blocks
        CHECK(health.front().at("parameter") == "transformer.h.0.attn.c_attn.weight");
        CHECK(health.front().at("update_ratio") > 0.0);
        if (ranks > 1) CHECK(count_of(result.output, "  slowest rank ") == 6);
    }
}

TEST_CASE("a run starts from the weights that another one exported, on any ranks") {
    SmallRun run;
    const ProcessResult first = run_command(run.train("--set telemetry.run_dir=" + run.path("first")));
    INFO(first.output);
    REQUIRE(first.exit_code == 0);
    run.document()["model"] = {{"init_from", run.path("first") + "/model"}};
    run.document()["train"]["seed"] = 99;  // does not matter any more
    run.write();
    std::vector<std::string> trajectory;
    for (const int ranks : {1, 3}) {
        const std::string name = "second" + std::to_string(ranks);
        const ProcessResult second =
            run_command(under_mpirun(ranks, run.train("--set threads=1 --set telemetry.run_dir=" + run.path(name))));
        INFO(second.output);
        REQUIRE(second.exit_code == 0);
        if (ranks == 1) trajectory = run.trajectory(name);
        CHECK(run.trajectory(name) == trajectory);
        // It goes on where the first one ended, not at the loss of random weights.
        CHECK(std::stod(trajectory.front()) < std::stod(run.trajectory("first").front()) - 0.5);
    }

    std::filesystem::remove(run.path("first") + "/model/model.safetensors");
    const ProcessResult missing = run_command(under_mpirun(2, run.train()), 60);
    INFO(missing.output);
    CHECK(missing.exit_code == 3);
    CHECK(missing.seconds < 30);
    const ProcessResult nowhere = run_command(run.train("--set model.init_from=/nowhere"), 60);
    CHECK(nowhere.exit_code == 2);
    CHECK(count_of(nowhere.output,
                   "config: model.init_from = /nowhere: must be a directory with config.json and safetensors") == 1);
}

TEST_CASE("a bfloat16 run exports bfloat16 weights, the same bytes on any ranks, and another one starts from them") {
    SmallRun run;
    run.document().erase("precision");  // the default
    run.document()["recompute"]["mode"] = "block";
    run.write();
    std::string weights;
    std::vector<std::string> trajectory;
    for (const int ranks : {1, 3}) {
        const std::string name = "run" + std::to_string(ranks);
        const ProcessResult result =
            run_command(under_mpirun(ranks, run.train("--set threads=1 --set telemetry.run_dir=" + run.path(name))));
        INFO(result.output);
        REQUIRE(result.exit_code == 0);
        const std::string file = read_file(run.path(name) + "/model/model.safetensors");
        if (ranks == 1) {
            weights = file;
            trajectory = run.trajectory(name);
        }
        CHECK(file == weights);
        CHECK(run.trajectory(name) == trajectory);
    }
    CHECK(weights.find("\"BF16\"") != std::string::npos);
    CHECK(weights.find("\"F32\"") == std::string::npos);
    CHECK(json::parse(read_file(run.path("run1") + "/model/config.json")).at("torch_dtype") == "bfloat16");
    REQUIRE(trajectory.size() == 6);
    CHECK(trajectory.front() != trajectory.back());

    run.document()["model"] = {{"init_from", run.path("run1") + "/model"}};
    run.write();
    const ProcessResult second = run_command(run.train("--set telemetry.run_dir=" + run.path("second")));
    INFO(second.output);
    REQUIRE(second.exit_code == 0);
    CHECK(std::stod(run.trajectory("second").front()) < std::stod(trajectory.front()) - 0.5);
}
