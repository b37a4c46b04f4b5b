// What docs/metrics.md promises of metrics.jsonl, and what the log tells: read from runs of real processes.

#include "process/small_run.h"
#include "support/catch.h"

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

using mfsdp::test::count_of;
using mfsdp::test::ProcessResult;
using mfsdp::test::read_file;
using mfsdp::test::run_command;
using mfsdp::test::SmallRun;
using mfsdp::test::under_mpirun;
using nlohmann::json;

namespace {

/// Keys by kind of line; those of an event's own under "event <name>".
using KeysOfKind = std::map<std::string, std::set<std::string>>;

std::set<std::string> quoted_words(const std::string& cell) {
    static const std::regex kQuoted("`([^`]*)`");
    std::set<std::string> words;
    for (std::sregex_iterator word(cell.begin(), cell.end(), kQuoted), end; word != end; ++word)
        words.insert((*word)[1]);
    return words;
}

/// The tables of docs/metrics.md: a section for each kind with the keys in the first column, and one of all events.
KeysOfKind documented_keys() {
    KeysOfKind keys;
    std::istringstream page(read_file(MFSDP_SOURCE_DIR "/docs/metrics.md"));
    std::string section;
    for (std::string line; std::getline(page, line);) {
        if (line.starts_with("## ")) section = line.substr(3);
        if (!line.starts_with("| `")) continue;
        const auto border = line.find(" | ");
        const std::set<std::string> first = quoted_words(line.substr(0, border));
        if (section == "Events") {
            const auto second_end = line.find(" | ", border + 1);
            keys["event " + *first.begin()] = quoted_words(line.substr(border, second_end - border));
        } else {
            keys[*quoted_words(section).begin()].insert(first.begin(), first.end());
        }
    }
    return keys;
}

void add_written_keys(const std::string& path, const KeysOfKind& documented, KeysOfKind& written) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        CHECK(line.starts_with("{\"kind\":"));
        const json record = json::parse(line);
        const std::string kind = record.at("kind");
        std::set<std::string>& keys = written[kind];
        const std::set<std::string>& common = documented.at(kind);
        const bool is_event = kind == "event";
        if (is_event) written["event " + record.at("event").get<std::string>()];
        for (const auto& [key, value] : record.items()) {
            if (key == "kind") continue;
            if (value.is_object()) {
                for (const auto& [inner, ignored] : value.items())
                    keys.insert(std::string(key).append(".").append(inner));
            } else if (is_event && !common.contains(key)) {
                written["event " + record.at("event").get<std::string>()].insert(key);
            } else {
                keys.insert(key);
            }
        }
    }
}

}  // namespace

TEST_CASE("docs/metrics.md names the keys that runs write, and no others") {
    SmallRun run;
    mfsdp::test::write_file(run.path("valid.txt"), std::string(100, 'o'));
    run.document()["data"]["valid"] = {run.path("valid.txt")};
    run.document()["train"]["steps"] = 3;
    run.document()["train"]["z_loss"] = 1e-4;
    run.document()["train"]["eval_interval"] = 3;
    run.document()["train"]["sample_interval"] = 3;
    run.document()["train"]["sample_tokens"] = 2;
    run.document()["telemetry"]["health_interval"] = 2;
    run.write();
    const ProcessResult whole = run_command(under_mpirun(2, run.train("--set threads=1")));
    INFO(whole.output);
    REQUIRE(whole.exit_code == 0);
    SmallRun diverging;
    const ProcessResult skipping = run_command(
        diverging.train("--set optimizer.lr=1e30 --set optimizer.clip_grad=0 --set checkpoint.export_at_end=false"));
    INFO(skipping.output);
    REQUIRE(skipping.exit_code == 0);

    // Fewer tokens than rows: factors are singular, and with next to no ridge the coupled iteration cannot end.
    SmallRun failing;
    failing.document()["optimizer"]["matrix"] = {{"name", "shampoo"},
                                                 {"root_method", "coupled_newton"},
                                                 {"epsilon_mode", "absolute"},
                                                 {"epsilon", 1e-30},
                                                 {"start_preconditioning_step", 1}};
    failing.write();
    const std::string threads = "--set threads=1 --set checkpoint.export_at_end=false";
    const ProcessResult failures = run_command(under_mpirun(2, failing.train(threads)));
    INFO(failures.output);
    REQUIRE(failures.exit_code == 0);
    CHECK(count_of(failures.output, "failed refreshes in a row of transformer.h.") > 0);
    const ProcessResult too_many =
        run_command(under_mpirun(2, failing.train(threads + " --set optimizer.matrix.max_refresh_failures=0")));
    INFO(too_many.output);
    CHECK(too_many.exit_code == 5);
    CHECK(count_of(too_many.output, "1 refreshes in a row failed, optimizer.matrix.max_refresh_failures = 0") == 1);

    const KeysOfKind documented = documented_keys();
    REQUIRE(documented.size() == 10);  // five kinds, five events
    CHECK(documented.at("train").size() > 25);
    KeysOfKind written;
    add_written_keys(run.path("run") + "/metrics.jsonl", documented, written);
    add_written_keys(diverging.path("run") + "/metrics.jsonl", documented, written);
    add_written_keys(failing.path("run") + "/metrics.jsonl", documented, written);
    CHECK(written == documented);
}

TEST_CASE("a run in the directory of an earlier one says so once and appends to its metrics") {
    const SmallRun run;
    const std::string steps = "--set train.steps=1 --set threads=1";
    const ProcessResult first = run_command(run.train(steps));
    INFO(first.output);
    REQUIRE(first.exit_code == 0);
    CHECK(count_of(first.output, "holds an earlier run") == 0);
    const std::string metrics = read_file(run.path("run") + "/metrics.jsonl");
    const ProcessResult second =
        run_command(under_mpirun(2, run.train(steps + " --set checkpoint.export_at_end=false")));
    INFO(second.output);
    REQUIRE(second.exit_code == 0);
    CHECK(count_of(second.output, "warning: telemetry.run_dir = " + run.path("run") +
                                      " holds an earlier run: its metrics and logs go on, its config.resolved.json is "
                                      "replaced\n") == 1);
    const std::string both = read_file(run.path("run") + "/metrics.jsonl");
    CHECK(both.starts_with(metrics));
    CHECK(count_of(both, "\"kind\":\"run\"") == 2);
    const ProcessResult third = run_command(run.train(steps));
    CHECK(count_of(third.output, "replaced, at the end also its model\n") == 1);
}

TEST_CASE("debug tells what was chosen for a start, line by line, from rank 0 alone") {
    const SmallRun run;
    const std::string steps = "--set train.steps=1 --set threads=1 --set checkpoint.export_at_end=false";
    const ProcessResult plain = run_command(under_mpirun(2, run.train(steps)));
    INFO(plain.output);
    REQUIRE(plain.exit_code == 0);
    CHECK(count_of(plain.output, "debug") == 0);
    CHECK(count_of(plain.output, "; 2 ranks x 1 thread, strategy matrix_fsdp") == 1);
    const ProcessResult told = run_command(under_mpirun(
        2, run.train(steps + " --set telemetry.log_level=debug --set telemetry.run_dir=" + run.path("told"))));
    INFO(told.output);
    REQUIRE(told.exit_code == 0);
    for (const std::string part :
         {"debug: configuration ", "debug: transfers: block 0: gather ", "debug: transfers: block 1: gather ",
          "debug: transfers: chunks of 4.0 MiB, 1 unit gathered ahead", "debug: pools of rank 0: gathered ",
          "debug: timeouts: 300 s at start, 600 s without progress", "debug: rank 0 is on ", "debug: rank 1 is on ",
          "text.txt: "}) {
        INFO(part);
        CHECK(count_of(told.output, part) == 1);
    }
    // Every line of the file names time, rank and level, those of tables too.
    std::istringstream file(read_file(run.path("told") + "/logs/rank_00000.log"));
    std::int64_t lines = 0;
    for (std::string line; std::getline(file, line); ++lines) {
        INFO(line);
        CHECK(line.find(" rank 0 ") == 29);
    }
    CHECK(lines > 10);
}
