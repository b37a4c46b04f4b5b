#include "mfsdp/runtime/telemetry/run_directory.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

#include <filesystem>
#include <optional>

#include <sys/wait.h>
#include <unistd.h>

using mfsdp::ConfigError;
using mfsdp::runtime::RunDirectory;
using mfsdp::test::message_of;
using mfsdp::test::read_file;
using mfsdp::test::TemporaryDirectory;
using mfsdp::test::write_file;

TEST_CASE("a run directory is made with its parents and keeps the resolved configuration") {
    const TemporaryDirectory folder;
    const RunDirectory run(folder / "runs/first");
    run.write_resolved_config("{\"a\": 1}\n");
    CHECK(read_file(folder / "runs/first/config.resolved.json") == "{\"a\": 1}\n");
    run.write_resolved_config("{}\n");
    CHECK(read_file(folder / "runs/first/config.resolved.json") == "{}\n");
    CHECK_FALSE(std::filesystem::exists(folder / "runs/first/config.resolved.json.tmp"));
    CHECK(run.metrics_path() == folder / "runs/first/metrics.jsonl");
    CHECK(mfsdp::runtime::rank_log_path(run.path(), 3) == folder / "runs/first/logs/rank_00003.log");
    CHECK(std::filesystem::is_directory(folder / "runs/first/logs"));
}

TEST_CASE("a run directory knows of an earlier run by what that one left") {
    const TemporaryDirectory folder;
    CHECK_FALSE(RunDirectory(folder / "run").had_a_run());
    CHECK_FALSE(RunDirectory(folder / "run").had_a_run());  // a lock alone is no run
    write_file(folder / "run/metrics.jsonl", "");
    CHECK(RunDirectory(folder / "run").had_a_run());
    std::filesystem::create_directories(folder / "exported/model");
    CHECK(RunDirectory(folder / "exported").had_a_run());
}

TEST_CASE("a run directory has one holder, also among processes, and is free when that one ends") {
    const TemporaryDirectory folder;
    const std::string path = folder / "run";
    std::optional<RunDirectory> first(path);
    const std::string message = message_of<ConfigError>([&] { RunDirectory{path}; });
    CHECK(message.starts_with("config: telemetry.run_dir = " + path + ": in use by process " +
                              std::to_string(::getpid()) + " on "));
    const auto child_finds_it_held = [&] {
        const pid_t child = ::fork();
        if (child == 0) ::_exit(message_of<ConfigError>([&] { RunDirectory{path}; }) == message ? 1 : 0);
        int status = 0;
        ::waitpid(child, &status, 0);
        return WEXITSTATUS(status) == 1;
    };
    CHECK(child_finds_it_held());
    first.reset();
    CHECK_FALSE(child_finds_it_held());
    CHECK_NOTHROW(RunDirectory(path));
}

TEST_CASE("a run directory that cannot be made or written is a configuration error") {
    const TemporaryDirectory folder;
    write_file(folder / "file", "x");
    const std::string path = folder / "file/run";
    CHECK(message_of<ConfigError>([&] { RunDirectory{path}; }) ==
          "config: telemetry.run_dir = " + path + ": cannot be created: Not a directory");
    std::filesystem::create_directories(folder / "run/.lock");
    CHECK(message_of<ConfigError>([&] { RunDirectory{folder / "run"}; }) ==
          "config: " + (folder / "run/.lock") + ": cannot open: Is a directory");
}
