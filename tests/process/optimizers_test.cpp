// The configurations of configs/optimizers as their users start them, for a few steps.

#include "process/small_run.h"
#include "support/catch.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

using namespace mfsdp::test;
using nlohmann::json;

namespace {

/// Losses of the steps that metrics.jsonl tells of.
std::vector<double> losses(const std::string& run_dir) {
    std::vector<double> result;
    std::ifstream file(run_dir + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
        const json record = json::parse(line);
        if (record.at("kind") == "train") result.push_back(record.at("loss").get<double>());
    }
    return result;
}

}  // namespace

TEST_CASE("every configuration of configs/optimizers trains under its optimizer, with the same losses on any ranks") {
    const std::filesystem::path folder = std::filesystem::path(MFSDP_SOURCE_DIR) / "configs" / "optimizers";
    const TemporaryDirectory directory;
    std::set<std::string> met;
    std::set<std::vector<double>> different;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string name = entry.path().stem();
        // Small sequences, but twelve of them: the first refresh of roots and bases is behind them.
        const std::string command = kTrain + " --config " + entry.path().string() +
                                    " --set train.steps=12 --set optimizer.warmup_steps=1 --set train.seq_len=32 "
                                    "--set train.micro_batch_size=1 --set train.global_batch_size=2 "
                                    "--set model.n_layer=1 --set threads=1 --set \"data.train=[\\\"" +
                                    MFSDP_SOURCE_DIR + "/docs/config.md\\\"]\" --set telemetry.run_dir=";
        std::vector<double> reference;
        for (const int ranks : {1, 2}) {
            const std::string run_dir = directory / (name + std::to_string(ranks));
            const ProcessResult run = run_command(under_mpirun(ranks, command + run_dir));
            INFO(name << " on " << ranks << " ranks: " << run.output);
            if (run.exit_code == 2 && count_of(run.output, "built without OpenBLAS") >= 1) {
                WARN(name << " skipped: the program was built without OpenBLAS");
                break;
            }
            REQUIRE(run.exit_code == 0);
            const std::vector<double> got = losses(run_dir);
            REQUIRE(got.size() == 12);
            CHECK(got.back() < got.front());
            if (ranks == 1) reference = got;
            CHECK(got == reference);
            const std::string shown = name == "adamw" ? "none" : name == "normuon" ? "muon" : name;
            CHECK(count_of(run.output, shown + " ") >= 1);
        }
        if (reference.empty()) continue;
        met.insert(name);
        different.insert(reference);
    }
    CHECK(met.size() >= 3);
    CHECK(different.size() == met.size());
}
