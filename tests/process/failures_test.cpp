// What can go wrong around a run: the launcher, the machine, the disk, files that change. Real processes.

#include "process/small_run.h"
#include "support/catch.h"

#include <cstdint>
#include <filesystem>
#include <string>

using mfsdp::test::count_of;
using mfsdp::test::ProcessResult;
using mfsdp::test::read_file;
using mfsdp::test::run_command;
using mfsdp::test::SmallRun;
using mfsdp::test::under_mpirun;
using mfsdp::test::write_file;

namespace {

const std::string kForever = "--set train.steps=1000000 --set checkpoint.export_at_end=false ";

void check_refusal(const std::string& command, int exit_code, const std::string& part) {
    const ProcessResult result = run_command(command, 60);
    INFO(command << "\n" << result.output);
    CHECK(result.exit_code == exit_code);
    CHECK(count_of(result.output, part) == 1);
    CHECK(result.seconds < 30);
}

/// Shell words that run `command` in the background, wait until `run_dir` has the metrics of a step, do `action`, and
/// end as the command ends. $! is the command's process.
std::string once_training(const SmallRun& run, const std::string& command, const std::string& action) {
    return command + " & until grep -qs kind...train " + run.path("run") +
           "/metrics.jsonl || ! kill -0 $!; do sleep 0.1; done; " + action + "; wait $!";
}

}  // namespace

TEST_CASE("tasks that srun started without PMIx are refused before anything is made") {
    const SmallRun run;
    check_refusal("SLURM_STEP_NUM_TASKS=4 " + run.train(), 2, "start with srun --mpi=pmix or with mpirun");
    CHECK_FALSE(std::filesystem::exists(run.path("run")));
    const ProcessResult one = run_command("SLURM_STEP_NUM_TASKS=1 " + run.train("--set train.steps=1"), 60);
    INFO(one.output);
    CHECK(one.exit_code == 0);
}

TEST_CASE("a wrong variable of the environment ends all ranks with one message") {
    const SmallRun run;
    check_refusal("OMP_NUM_THREADS=many " + under_mpirun(2, run.train()), 2, "config: OMP_NUM_THREADS = many: ");
    check_refusal("MFSDP_LOG_LEVEL=loud " + under_mpirun(2, run.train()), 2, "config: MFSDP_LOG_LEVEL = loud: ");
}

TEST_CASE("a run directory that another run holds is refused, and named with its holder") {
    const SmallRun run;
    REQUIRE(run_command("mkdir " + run.path("run"), 60).exit_code == 0);
    write_file(run.path("run/.lock"), "process 7 on n1\n");
    check_refusal("flock " + run.path("run/.lock") + " " + run.train(), 2,
                  "config: telemetry.run_dir = " + run.path("run") + ": in use by process 7 on n1");
    check_refusal("flock " + run.path("run/.lock") + " " + under_mpirun(3, run.train()), 2,
                  "in use by process 7 on n1");
    CHECK_FALSE(std::filesystem::exists(run.path("run/metrics.jsonl")));
}

TEST_CASE("a run directory that cannot be written is an error at start, whatever part of it") {
    const SmallRun run;
    check_refusal(run.train("--set telemetry.run_dir=/proc/run"), 2,
                  "telemetry.run_dir = /proc/run: cannot be created");
    const auto refuses = [&](const std::string& preparation, const std::string& part) {
        const std::string folder = run.path("run");
        check_refusal("rm -rf " + folder + "; mkdir -p " + folder + "/logs; cd " + folder + "; " + preparation + "; " +
                          run.train(),
                      2, part);
    };
    refuses("mkdir metrics.jsonl", "metrics.jsonl: cannot open: Is a directory");
    refuses("rmdir logs; touch logs", "logs: cannot be created");
    refuses("mkdir logs/rank_00000.log", "rank_00000.log: the log cannot be opened");
    check_refusal("rm -rf " + run.path("run") + "; mkdir " + run.path("run") + "; touch " + run.path("run/model") +
                      "; " + under_mpirun(2, run.train()),
                  4, "model: is a file, wanted a directory");
    CHECK_FALSE(std::filesystem::exists(run.path("run/metrics.jsonl")));
    refuses("ln -s /dev/full config.resolved.json.tmp", "No space left on device");
}

TEST_CASE("a disk that fills up while training closes what writes to it with one message, and training goes on") {
    const SmallRun run;
    // A limit on the size of files stands for the disk: the metrics reach it after some ten lines, the log at once.
    const std::string options =
        "--set train.steps=40 --set checkpoint.export_at_end=false --set telemetry.log_level=debug";
    const ProcessResult limited = run_command("ulimit -f 12; " + run.train(options), 60);
    INFO(limited.output);
    CHECK(limited.exit_code == 0);
    CHECK(count_of(limited.output, "File too large; no more metrics are written, training goes on") == 1);
    CHECK(count_of(limited.output, "step 40/40") == 1);
    const std::string written = read_file(run.path("run/metrics.jsonl"));
    CHECK(written.size() > 4000);
    CHECK(written.size() <= 12 * 1024);
}

TEST_CASE("a full log closes with one message and training goes on") {
    const SmallRun run;
    REQUIRE(run_command("mkdir -p " + run.path("run/logs"), 60).exit_code == 0);
    std::filesystem::create_symlink("/dev/full", run.path("run/logs/rank_00000.log"));
    const ProcessResult result = run_command(run.train(), 60);
    INFO(result.output);
    CHECK(result.exit_code == 0);
    CHECK(count_of(result.output, "this log ends here, the program goes on") == 1);
    CHECK(run.trajectory("run").size() == 6);
}

TEST_CASE("training outlives its standard output, full or closed") {
    const SmallRun run;
    const std::string told =
        "telemetry: standard output cannot be written; no more progress is shown, training goes on";
    for (const std::string output : {" >/dev/full", " | head -n 1"}) {
        const ProcessResult result =
            run_command("(" + run.train("--set telemetry.console=lines") + "; echo ended $? >&2)" + output, 60);
        INFO(result.output);
        CHECK(count_of(result.output, told) == 1);
        CHECK(count_of(result.output, "ended 0") == 1);
        CHECK(run.trajectory("run").size() >= 6);
    }
}

TEST_CASE("weights that a full disk cuts short are an error") {
    const SmallRun run;
    check_refusal("ulimit -f 16; " + run.train("--set telemetry.log_level=error"), 4, "File too large");
    CHECK_FALSE(std::filesystem::exists(run.path("run/model/model.safetensors")));
}

TEST_CASE("a data file that shrinks while training ends all ranks with exit code 3") {
    SmallRun run;
    run.document()["data"]["shuffle"] = true;
    run.document()["train"]["steps"] = 1000000;
    run.write();
    const ProcessResult result = run_command(
        once_training(run, under_mpirun(2, run.train(kForever)), "truncate -s 100 " + run.path("text.txt")), 60);
    INFO(result.output);
    CHECK(result.exit_code == 3);
    CHECK(count_of(result.output, "data: " + run.path("text.txt") + ": read ") >= 1);
    CHECK(count_of(result.output, " bytes at offset ") >= 1);
    CHECK(result.seconds < 40);
}

TEST_CASE("a rank that is stopped longer than the timeout ends the job with exit code 6") {
    SmallRun run;
    run.document()["parallel"]["train_timeout_seconds"] = 2;
    for (const char* const strategy : {"matrix_fsdp", "ddp"}) {
        run.document()["parallel"]["strategy"] = strategy;
        run.write();
        std::filesystem::remove_all(run.path("run"));
        // The newest process with this configuration is a rank, and not the one that writes.
        const ProcessResult result = run_command(
            once_training(run, under_mpirun(3, run.train(kForever)), "pkill -STOP -n -f " + run.config()), 60);
        INFO(strategy << "\n" << result.output);
        CHECK(result.exit_code == 6);
        CHECK(count_of(result.output, "within 2.0") + count_of(result.output, "for 2.0") >= 1);
        CHECK(result.seconds < 30);
    }
}

TEST_CASE("a rank that does not come to the start of MPI ends the job with exit code 6") {
    const SmallRun run;
    const std::string early = under_mpirun(1, run.train("--set parallel.init_timeout_seconds=3") +
                                                  " : -np 1 sh -c \"kill -STOP \\$\\$; exec " + run.train() + "\"");
    const ProcessResult result = run_command(early, 60);
    INFO(result.output);
    CHECK(result.exit_code == 6);
    CHECK(count_of(result.output, "start of MPI: not all ranks came within 3 s (parallel.init_timeout_seconds)") == 1);
    CHECK(result.seconds < 30);
}
