// The programs as their users start them: real processes, exit codes, files.

#include "process/small_run.h"
#include "support/catch.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

using mfsdp::test::count_of;
using mfsdp::test::kPlan;
using mfsdp::test::kTrain;
using mfsdp::test::ProcessResult;
using mfsdp::test::read_file;
using mfsdp::test::run_command;
using mfsdp::test::SmallRun;
using mfsdp::test::TemporaryDirectory;
using mfsdp::test::under_mpirun;
using nlohmann::json;

TEST_CASE("real processes train to the same bits on 1 2 3 4 and 8 ranks") {
    const SmallRun run;
    const ProcessResult alone = run_command(run.train("--set telemetry.run_dir=" + run.path("run1")));
    INFO(alone.output);
    REQUIRE(alone.exit_code == 0);
    const std::vector<std::string> trajectory = run.trajectory("run1");
    REQUIRE(trajectory.size() == 6);
    CHECK(trajectory.front() != trajectory.back());
    const std::string model = mfsdp::test::read_file(run.path("run1") + "/model/model.safetensors");
    REQUIRE(model.size() > 10000);
    for (const int ranks : {1, 2, 3, 4, 8}) {
        for (const std::string strategy : {"matrix_fsdp", "zero1_owner", "ddp"}) {
            if (ranks != 4 && strategy != "matrix_fsdp") continue;
            const std::string name = "run_" + strategy + std::to_string(ranks);
            const ProcessResult many = run_command(
                under_mpirun(ranks, run.train("--set parallel.strategy=" + strategy +
                                              " --set threads=1 --set telemetry.run_dir=" + run.path(name))));
            INFO(many.output);
            REQUIRE(many.exit_code == 0);
            CHECK(run.trajectory(name) == trajectory);
            CHECK(mfsdp::test::read_file(run.path(name) + "/model/model.safetensors") == model);
        }
    }
}

TEST_CASE("a configuration error ends all ranks with exit code 2 and one message") {
    SmallRun run;
    run.document()["optimizer"]["momentun"] = 1;
    run.write();
    const ProcessResult result = run_command(under_mpirun(3, run.train()), 60);
    INFO(result.output);
    CHECK(result.exit_code == 2);
    CHECK(count_of(result.output, "config: optimizer.momentun: unknown key") == 1);
    CHECK(result.seconds < 30);
}

TEST_CASE("a mesh that does not fit the ranks is refused with exit code 2") {
    const SmallRun run;
    const ProcessResult result = run_command(under_mpirun(2, run.train("--set parallel.mesh.shard=4")), 60);
    INFO(result.output);
    CHECK(result.exit_code == 2);
    CHECK(count_of(result.output, "config: parallel.mesh: 1 x 4 needs 4 ranks, started with 2") == 1);
}

TEST_CASE("ranks with different configurations stop at start and say what differs") {
    const SmallRun run;
    const ProcessResult result =
        run_command(under_mpirun(1, run.train() + " : -np 1 " + run.train("--set train.seed=99")), 60);
    INFO(result.output);
    CHECK(result.exit_code == 2);
    CHECK(count_of(result.output, "launch: ranks disagree on 'configuration': rank 0 has") == 1);
}

TEST_CASE("a damaged token on one rank ends the whole job with exit code 3") {
    SmallRun run;
    std::string file(1024, '\0');
    const std::int32_t count = 4000;
    const std::int32_t magic = 20240520, version = 1;
    std::memcpy(file.data(), &magic, 4);
    std::memcpy(file.data() + 4, &version, 4);
    std::memcpy(file.data() + 8, &count, 4);
    for (int token = 0; token < count; ++token) {
        const auto id = static_cast<std::uint16_t>(token == 3000 ? 9999 : token % 250);
        file.append(reinterpret_cast<const char*>(&id), 2);
    }
    mfsdp::test::write_file(run.path("tokens.bin"), file);
    run.document()["data"] = {{"train", {run.path("tokens.bin")}}, {"shuffle", false}};
    run.document()["train"]["steps"] = 40;
    run.write();
    const ProcessResult result = run_command(under_mpirun(3, run.train()), 60);
    INFO(result.output);
    CHECK(result.exit_code == 3);
    CHECK(count_of(result.output, "token 3000 is 9999, the model has 257 ids") == 1);
    CHECK(result.seconds < 30);
}

TEST_CASE("a loss that is not finite ends all ranks with exit code 5") {
    const SmallRun run;
    const std::string diverging = "--set optimizer.lr=1e30 --set optimizer.clip_grad=0 --set train.steps=50";
    const ProcessResult result = run_command(under_mpirun(2, run.train(diverging + " --set train.nonfinite=stop")), 60);
    INFO(result.output);
    CHECK(result.exit_code == 5);
    CHECK(count_of(result.output, "not finite; nothing was updated (train.nonfinite = stop)") == 1);
    CHECK(result.seconds < 30);

    const ProcessResult skipping =
        run_command(under_mpirun(2, run.train(diverging + " --set train.max_consecutive_skips=3")), 60);
    INFO(skipping.output);
    CHECK(skipping.exit_code == 5);
    CHECK(count_of(skipping.output, "4 skipped steps in a row, allowed are 3 (train.max_consecutive_skips)") == 1);
    CHECK(count_of(skipping.output, "slowest rank") > 0);
}

TEST_CASE("weights that are not finite are not written, and an earlier export stays") {
    const SmallRun run;
    REQUIRE(run_command(run.train("--set train.steps=1"), 60).exit_code == 0);
    const std::string before = read_file(run.path("run/model/model.safetensors"));
    REQUIRE_FALSE(before.empty());
    // The only step's update ruins the weights, and no later loss shows it.
    const std::string ruin = "--set train.steps=1 --set optimizer.lr=1e38 --set optimizer.decay_style=constant";
    const ProcessResult result = run_command(under_mpirun(2, run.train(ruin)), 60);
    INFO(result.output);
    CHECK(result.exit_code == 5);
    CHECK(count_of(result.output, "has values that are not finite, so ") == 1);
    CHECK(read_file(run.path("run/model/model.safetensors")) == before);
    CHECK_FALSE(std::filesystem::exists(run.path("run/model.tmp")));
}

TEST_CASE("a run that exports nothing ends in order, though new weights travel after its last step") {
    SmallRun run;
    run.document()["model"]["n_embd"] = 192;
    run.document()["parallel"]["strategy"] = "zero1_owner";
    run.document()["checkpoint"]["export_at_end"] = false;
    run.document()["train"]["steps"] = 1;
    run.write();
    const ProcessResult result = run_command(under_mpirun(3, run.train()), 60);
    INFO(result.output);
    CHECK(result.exit_code == 0);
}

TEST_CASE("a killed rank ends the whole job within 30 seconds") {
    const SmallRun run;
    const std::string command =
        under_mpirun(3, run.train("--set train.steps=1000000 --set checkpoint.export_at_end=false")) +
        " & sleep 3; pkill -KILL -n -f " + run.config() + "; wait $!";
    const ProcessResult result = run_command(command, 60);
    INFO(result.output);
    CHECK(result.exit_code != 0);
    CHECK(result.exit_code != 124);
    CHECK(result.seconds < 33);
}

TEST_CASE("a run directory is held by one run and must be writable") {
    const SmallRun run;
    mfsdp::test::write_file(run.path("file"), "not a folder");
    const ProcessResult result = run_command(run.train("--set telemetry.run_dir=" + run.path("file") + "/run"), 60);
    INFO(result.output);
    CHECK(result.exit_code == 2);
}

TEST_CASE("print-config gives a valid configuration that trains to the same bits") {
    const SmallRun run;
    const ProcessResult printed = run_command(run.train("--print-config"), 60);
    REQUIRE(printed.exit_code == 0);
    mfsdp::test::write_file(run.path("printed.json"), printed.output);
    const ProcessResult again =
        run_command(kTrain + " --config " + run.path("printed.json") + " --set telemetry.run_dir=" + run.path("run2"));
    INFO(again.output);
    REQUIRE(again.exit_code == 0);
    REQUIRE(run_command(run.train()).exit_code == 0);
    const std::vector<std::string> trajectory = run.trajectory("run");
    REQUIRE(trajectory.size() == 6);
    CHECK(run.trajectory("run2") == trajectory);
    // The resolved configuration that the run saved is a valid input too.
    const ProcessResult resolved =
        run_command(kTrain + " --config " + run.path("run") + "/config.resolved.json --set " +
                    "telemetry.run_dir=" + run.path("run3"));
    INFO(resolved.output);
    REQUIRE(resolved.exit_code == 0);
    CHECK(run.trajectory("run3") == trajectory);
}

TEST_CASE("mfsdp-plan plans and rehearses without ranks and data files") {
    SmallRun run;
    run.document()["data"]["train"] = {"/nowhere/*.txt"};
    run.write();
    const ProcessResult table = run_command(kPlan + " --config " + run.config() + " --world 5", 60);
    INFO(table.output);
    REQUIRE(table.exit_code == 0);
    CHECK(count_of(table.output, "transformer.h.1.attn.c_attn.weight [72, 24] matrix") == 1);
    CHECK(count_of(table.output, "optimizer GFLOP") >= 1);
    const ProcessResult document = run_command(kPlan + " --config " + run.config() + " --world 5 --json", 60);
    REQUIRE(document.exit_code == 0);
    const json plan = json::parse(document.output);
    CHECK(plan.at("per_rank").size() == 5);
    CHECK(plan.at("per_rank")[4].at("memory_total_bytes").get<std::int64_t>() > 0);
    CHECK(run_command(kPlan + " --config /nowhere.json", 60).exit_code == 2);
    const ProcessResult answers = run_command(kPlan + " --config " + run.config() + " --world 5 --memory-gib 0.01", 60);
    INFO(answers.output);
    CHECK(answers.exit_code == 0);
    CHECK(count_of(answers.output, "does it fit: yes") == 1);
    CHECK(count_of(answers.output, "fewest ranks that fit: 1;") == 1);
    CHECK(run_command(kPlan + " --config " + run.config() + " --memory-gib 0", 60).exit_code == 2);
}

TEST_CASE("a run that the machine has no memory for is refused before anything is allocated") {
    const SmallRun run;
    const ProcessResult result =
        run_command(run.train("--set model.n_layer=12 --set model.n_embd=49152 --set model.n_head=48"), 60);
    INFO(result.output);
    CHECK(result.exit_code == 2);
    CHECK(count_of(result.output, "1 rank on this machine, which has") == 1);
    CHECK(count_of(result.output, "weights") == 1);
}

TEST_CASE("usage errors exit with 2 and help with 0") {
    CHECK(run_command(kTrain, 60).exit_code == 2);
    CHECK(run_command(kTrain + " --nonsense", 60).exit_code == 2);
    const ProcessResult help = run_command(kTrain + " --help", 60);
    CHECK(help.exit_code == 0);
    CHECK(count_of(help.output, "--print-config") == 1);
}

TEST_CASE("what the machine or 64 bits cannot hold is refused with a sentence") {
    const SmallRun run;
    const auto refuses = [&](const std::string& setting, int exit_code, const std::string& part) {
        const ProcessResult result = run_command(run.train("--set " + setting), 60);
        INFO(setting << "\n" << result.output);
        CHECK(result.exit_code == exit_code);
        CHECK(count_of(result.output, part) == 1);
        CHECK(count_of(result.output, "internal error") == 0);
    };
    refuses("model.n_embd=2147483647 --set model.n_head=1", 2, "1.5e+20 parameters, at most 1e+18 fit");
    refuses("train.global_batch_size=1000000000", 2, "must be <= 16777216");
    refuses("parallel.mesh.shard=1000000000", 2, "must be <= 1048576");
    refuses("train.z_loss=1e308", 2, "train.z_loss = 1e308: must be representable in float32");
    refuses("parallel.collectives.chunk_bytes=1073741840", 2, "must be <= 1073741824");
    refuses("threads=4097", 2, "must be <= 4096");
    refuses("telemetry.run_dir=$(printf \"\\\\377\")", 2, "not UTF-8");
    CHECK(run_command(kPlan + " --plan-only --config " MFSDP_SOURCE_DIR "/configs/gpt_32b.json --world 1", 60)
              .exit_code == 0);
    // A limit of address space stands for a machine that is full.
    const ProcessResult threads = run_command("ulimit -v 2000000; " + run.train("--set threads=4000"), 60);
    INFO(threads.output);
    CHECK(threads.exit_code == 1);
    CHECK(count_of(threads.output, "of 4000 compute threads") == 1);
}

TEST_CASE("a pipe among the data files is refused instead of waited for") {
    SmallRun run;
    REQUIRE(run_command("mkfifo " + run.path("pipe"), 60).exit_code == 0);
    run.document()["data"]["train"] = {run.path("pipe")};
    run.write();
    const ProcessResult result = run_command(run.train(), 20);
    INFO(result.output);
    CHECK(result.exit_code == 3);
    CHECK(count_of(result.output, "not a regular file") == 1);
}

TEST_CASE("output that a full disk cuts short is no success") {
    const SmallRun run;
    CHECK(run_command(run.train("--print-config >/dev/full"), 60).exit_code == 1);
    CHECK(run_command(kPlan + " --config " + run.config() + " >/dev/full", 60).exit_code == 1);
}
