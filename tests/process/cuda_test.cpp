// Training on the emulated CUDA device as users would on GPUs: real processes, one device for each rank, transfers by
// the emulated NCCL.
#ifdef MFSDP_EMULATED_CUDA_MODULE

#include "process/small_run.h"
#include "support/catch.h"

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

using mfsdp::test::count_of;
using mfsdp::test::ProcessResult;
using mfsdp::test::run_command;
using mfsdp::test::SmallRun;
using mfsdp::test::under_mpirun;

namespace {

/// mfsdp-train as `command` starts it, on emulated devices with these settings. Blocks run on one thread: ranks share
/// the cores already.
ProcessResult run_on(const std::string& settings, const std::string& command, int limit_seconds = 120) {
    return run_command("export MFSDP_CUDA_MODULE=" MFSDP_EMULATED_CUDA_MODULE " MFSDP_EMULATED_CUDA=workers=1," +
                           settings + "; " + command,
                       limit_seconds);
}

struct Outcome {
    std::vector<std::string> trajectory;
    std::string model;
    bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(const SmallRun& run, const std::string& run_dir) {
    return {run.trajectory(run_dir), mfsdp::test::read_file(run.path(run_dir) + "/model/model.safetensors")};
}

/// Of every step of a run.
std::vector<double> losses(const SmallRun& run, const std::string& run_dir) {
    std::vector<double> values;
    std::istringstream lines(mfsdp::test::read_file(run.path(run_dir) + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
        const auto record = nlohmann::json::parse(line);
        if (record.at("kind") == "train") values.push_back(record.at("loss").get<double>());
    }
    return values;
}

/// Trains on `ranks` ranks, alone without a launcher.
Outcome train(const SmallRun& run, int ranks, const std::string& strategy, const std::string& settings) {
    static int number = 0;
    const std::string run_dir = "cuda" + std::to_string(++number);
    const std::string command = run.train("--set device=cuda --set parallel.strategy=" + strategy +
                                          " --set telemetry.run_dir=" + run.path(run_dir));
    const ProcessResult result = run_on(settings, ranks == 1 ? command : under_mpirun(ranks, command));
    INFO(result.output);
    REQUIRE(result.exit_code == 0);
    CHECK(count_of(result.output, "emulated GPU") >= 1);
    return outcome_of(run, run_dir);
}

}  // namespace

TEST_CASE("emulated GPUs: every strategy on 1 2 3 4 and 8 ranks trains to the bits of ddp on one") {
    SmallRun run;
    run.document()["train"]["steps"] = 3;
    run.write();
    const Outcome alone = train(run, 1, "ddp", "devices=1");
    REQUIRE(alone.trajectory.size() == 3);
    CHECK(alone.trajectory.front() != alone.trajectory.back());
    REQUIRE(alone.model.size() > 10000);
    int seed = 0;
    for (const int ranks : {1, 2, 3, 4, 8}) {
        for (const std::string strategy : {"matrix_fsdp", "zero1_owner", "ddp"}) {
            INFO(ranks << " ranks, " << strategy);
            // Streams at their own pace, so that a missing wait shows.
            const std::string settings = "devices=8,asynchronous=1,seed=" + std::to_string(++seed);
            CHECK(train(run, ranks, strategy, settings) == alone);
        }
    }
}

TEST_CASE("emulated GPUs: llama in bfloat16 with fewer key heads, the same bits on one rank and on three") {
    SmallRun run;
    run.document()["model"] = {{"model_type", "llama"},    {"vocab_size", 257},
                               {"hidden_size", 32},        {"num_hidden_layers", 2},
                               {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                               {"intermediate_size", 48},  {"max_position_embeddings", 32}};
    run.document()["precision"]["param_dtype"] = "bfloat16";
    run.document()["train"]["steps"] = 3;
    run.write();
    const Outcome alone = train(run, 1, "matrix_fsdp", "devices=1");
    REQUIRE(alone.trajectory.size() == 3);
    CHECK(train(run, 3, "matrix_fsdp", "devices=4,asynchronous=1") == alone);
    run.document()["parallel"] = {
        {"prefetch_units", 3}, {"prefetch_bytes", 12000}, {"collectives", {{"gather", "broadcast"}}}};
    run.write();
    CHECK(train(run, 2, "matrix_fsdp", "devices=4,asynchronous=1,seed=2") == alone);
}

TEST_CASE("emulated GPUs: Shampoo, SOAP and NorMuon follow the CPU, with the same bits on one rank and on three") {
    SmallRun run;
    run.document()["train"]["steps"] = 3;
    const std::vector<std::string> optimizers = {R"({"name": "shampoo", "precondition_frequency": 1})",
                                                 R"({"name": "soap", "precondition_frequency": 1})",
                                                 R"({"name": "muon", "normuon": true})"};
    for (const std::string& optimizer : optimizers) {
        INFO(optimizer);
        run.document()["optimizer"]["matrix"] = nlohmann::json::parse(optimizer);
        run.write();
        const ProcessResult cpu =
            run_on("devices=0", run.train("--set device=cpu --set telemetry.run_dir=" + run.path("cpu")));
        INFO(cpu.output);
        REQUIRE(cpu.exit_code == 0);
        const std::vector<double> expected = losses(run, "cpu");
        const std::string run_dir = run.path("one");
        const ProcessResult one =
            run_on("devices=1", run.train("--set device=cuda --set telemetry.run_dir=" + run_dir));
        INFO(one.output);
        REQUIRE(one.exit_code == 0);
        const std::vector<double> found = losses(run, "one");
        REQUIRE(expected.size() == 3);
        REQUIRE(found.size() == 3);
        for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(expected[i]).epsilon(1e-3));
        CHECK(train(run, 3, "matrix_fsdp", "devices=4,asynchronous=1") == outcome_of(run, "one"));
        std::filesystem::remove_all(run.path("cpu"));
        std::filesystem::remove_all(run.path("one"));
    }
}

TEST_CASE("precision.deterministic = false: emulated GPUs learn as with true, the CPU computes the same bits") {
    SmallRun run;
    run.document()["train"]["steps"] = 3;
    run.write();
    const auto on_cpu = [&](const std::string& run_dir, const std::string& deterministic) {
        const ProcessResult result =
            run_on("devices=0", run.train("--set device=cpu --set precision.deterministic=" + deterministic +
                                          " --set telemetry.run_dir=" + run.path(run_dir)));
        INFO(result.output);
        REQUIRE(result.exit_code == 0);
        return outcome_of(run, run_dir);
    };
    CHECK(on_cpu("any_order", "false") == on_cpu("one_order", "true"));
    const Outcome exact = train(run, 1, "matrix_fsdp", "devices=1");
    run.document()["precision"]["deterministic"] = false;
    run.write();
    const Outcome fast = train(run, 1, "matrix_fsdp", "devices=1");
    REQUIRE(fast.trajectory.size() == exact.trajectory.size());
    CHECK(fast.trajectory.front() == exact.trajectory.front());
    CHECK(fast.trajectory.back() != fast.trajectory.front());
}

TEST_CASE("device = auto takes GPUs where every rank sees one, and the file of the run says so") {
    const SmallRun run;
    const ProcessResult result = run_on("devices=1", run.train("--set train.steps=1"));
    INFO(result.output);
    CHECK(result.exit_code == 0);
    CHECK(count_of(result.output, "emulated GPU") >= 1);
    CHECK(count_of(mfsdp::test::read_file(run.path("run") + "/config.resolved.json"), "\"device\": \"cuda\"") == 1);
    const ProcessResult cpu = run_on("devices=0", run.train("--set train.steps=1"));
    INFO(cpu.output);
    CHECK(cpu.exit_code == 0);
    CHECK(count_of(cpu.output, "device: the CPU, since GPUs cannot be used: device: no GPU can be used: ") == 1);
    CHECK(count_of(mfsdp::test::read_file(run.path("run") + "/config.resolved.json"), "\"device\": \"cpu\"") == 1);
}

TEST_CASE("launch lines that do not fit the GPUs are refused with one message and exit code 2") {
    const SmallRun run;
    struct Refusal {
        std::string settings, arguments;
        int ranks;
        std::string message;
    };
    const std::vector<Refusal> refusals = {
        {"devices=2", "--set device=cuda", 3,
         "config: device = cuda: 3 ranks on the node of rank 0, which sees 2 GPUs; start at most one rank for each "
         "GPU"},
        {"devices=0", "--set device=cuda", 1,
         "config: device = cuda: rank 0 sees no GPU (device: no GPU can be used: "},
        {"devices=2", "--set parallel.transport=mpi", 2,
         "config: parallel.transport = mpi: MPI does not reach the memory of GPUs; use nccl or auto"},
        {"devices=0", "--set parallel.transport=nccl", 2,
         "config: parallel.transport = nccl: needs device = cuda, and no rank sees a GPU"},
        {"devices=2", "--set parallel.collectives.reduce=direct", 2,
         "config: parallel.collectives.reduce = direct: NCCL, which device = cuda needs on several ranks, cannot run "
         "it; use grouped or auto"},
        {"devices=0", "--set device=cpu --set parallel.collectives.gather=broadcast", 2,
         "config: parallel.collectives.gather = broadcast: only NCCL broadcasts, and device = cpu; use device = cuda, "
         "or gather = auto"},
    };
    for (const Refusal& refusal : refusals) {
        const ProcessResult result =
            run_on(refusal.settings, under_mpirun(refusal.ranks, run.train(refusal.arguments)), 60);
        INFO(result.output);
        CHECK(result.exit_code == 2);
        CHECK(count_of(result.output, refusal.message) == 1);
    }
    const ProcessResult missing =
        run_command("MFSDP_CUDA_MODULE=/nowhere/libmfsdp_cuda.so " + run.train("--set device=cuda"));
    INFO(missing.output);
    CHECK(missing.exit_code == 2);
    CHECK(count_of(missing.output,
                   "config: device = cuda: rank 0 sees no GPU (device: the CUDA backend cannot be opened: ") == 1);
}

TEST_CASE("errors of NCCL, of the device and of its memory end the job with their exit codes") {
    const SmallRun run;
    const ProcessResult asynchronous = run_on("devices=2,asynchronous=1,failing_call=asynchronously",
                                              under_mpirun(2, run.train("--set device=cuda")), 60);
    INFO(asynchronous.output);
    CHECK(asynchronous.exit_code == 6);
    CHECK(count_of(asynchronous.output, "lane: NCCL reports on rank ") >= 1);

    const ProcessResult launch = run_on("devices=1,failing_call=cudaMemcpyAsync", run.train("--set device=cuda"));
    INFO(launch.output);
    CHECK(launch.exit_code == 1);
    CHECK(count_of(launch.output, "cudaMemcpyAsync(") == 1);

    const ProcessResult memory = run_on("devices=1,memory_bytes=300000", run.train("--set device=cuda"));
    INFO(memory.output);
    CHECK(memory.exit_code == 1);
    CHECK(count_of(memory.output, "bytes do not fit, ") == 1);
    CHECK(count_of(memory.output, "use a smaller train.micro_batch_size") == 1);
}

#endif
