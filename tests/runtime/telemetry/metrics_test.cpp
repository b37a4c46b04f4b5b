#include "mfsdp/runtime/telemetry/metrics.h"

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/telemetry/metrics_writer.h"

#include "support/catch.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>

#include <nlohmann/json.hpp>

using namespace mfsdp::runtime;
using mfsdp::test::read_file;
using mfsdp::test::TemporaryDirectory;
using mfsdp::test::write_file;

TEST_CASE("a train line has the keys of the format, and reads back to the same bits") {
    TrainRecord record;
    record.step = 3;
    record.tokens_seen = 5'000'000'000;
    record.epoch = 0.1;
    record.loss = 1.0 / 3.0;
    record.targets = 2047;
    record.grad_norm = std::numeric_limits<double>::infinity();
    record.clip_scale = std::nan("");
    record.lr = 3e-4;
    record.skipped = true;
    record.skipped_total = 2;
    record.optimizer_s = 0.25;
    record.gather_bytes = 9'000'000'000'000;
    const std::string line = metrics_line(record);
    CHECK(line.substr(0, 56) == R"({"kind":"train","step":3,"tokens_seen":5000000000,"epoch)");
    CHECK(line.find('\n') == std::string::npos);
    const auto json = nlohmann::json::parse(line);
    CHECK(json.at("loss").get<double>() == 1.0 / 3.0);
    CHECK(json.at("grad_norm") == "inf");
    CHECK(json.at("clip_scale") == "nan");
    CHECK(json.at("skipped") == 1);
    CHECK(json.at("mfu").is_null());
    CHECK(json.at("optimizer_s") == 0.25);
    CHECK(json.at("gather_bytes") == 9'000'000'000'000);
    CHECK_FALSE(json.contains("z_loss"));
    CHECK(line.find(R"("lr":3e-04,)") != std::string::npos);
    for (const char* key :
         {"targets", "skipped_total", "step_time_s", "tokens_per_s", "tokens_per_s_per_rank", "tflops_per_rank"}) {
        CHECK(json.contains(key));
    }
}

TEST_CASE("run and event lines are JSON objects of their kind") {
    RunRecord run;
    run.version = "0.1.0";
    run.device = "cpu \"x\"\n";
    run.mesh_replicate = 2;
    run.matrix_parameters = 10;
    run.flops_per_token = 6e9;
    const auto run_json = nlohmann::json::parse(metrics_line(run));
    CHECK(run_json.at("kind") == "run");
    CHECK(run_json.at("device") == "cpu \"x\"\n");
    CHECK(run_json.at("mesh").at("replicate") == 2);
    CHECK(run_json.at("parameters").at("matrix") == 10);
    CHECK(run_json.at("peak_flops").is_null());
    EventRecord event{7, "checkpoint", "2025-01-31T23:59:59Z", {}};
    event.details = {{"path", std::string("runs/\xFF")}, {"bytes", std::int64_t{12}}, {"save_s", 0.5}};
    CHECK(metrics_line(event) ==
          "{\"kind\":\"event\",\"step\":7,\"time\":\"2025-01-31T23:59:59Z\",\"event\":\"checkpoint\","
          "\"path\":\"runs/\xEF\xBF\xBD\",\"bytes\":12,\"save_s\":0.5}");
    CHECK(utc_time().size() == 20);
    CHECK(utc_time().back() == 'Z');
}

TEST_CASE("each record is in the file at once, and a restart appends") {
    const TemporaryDirectory folder;
    const std::string path = folder / "metrics.jsonl";
    MetricsWriter writer(path);
    const EventRecord record{1, "start", "2025-01-31T23:59:59Z", {}};
    writer.write(record);
    CHECK(read_file(path) == metrics_line(record) + "\n");
    MetricsWriter(path).write(record);
    CHECK(read_file(path) == metrics_line(record) + "\n" + metrics_line(record) + "\n");
}

TEST_CASE("a line cut off by a crash is ended before the next one") {
    const TemporaryDirectory folder;
    const std::string path = folder / "metrics.jsonl";
    write_file(path, "{\"kind\":\"tra");
    MetricsWriter writer(path);
    const EventRecord record{1, "start", "2025-01-31T23:59:59Z", {}};
    writer.write(record);
    writer.write(record);
    CHECK(read_file(path) == "{\"kind\":\"tra\n" + metrics_line(record) + "\n" + metrics_line(record) + "\n");
}

TEST_CASE("a full disk closes the metrics file with one message and training goes on") {
    const TemporaryDirectory folder;
    const std::string path = folder / "metrics.jsonl";
    std::filesystem::create_symlink("/dev/full", path);
    std::ostringstream errors;
    MetricsWriter writer(path, errors);
    CHECK(writer.is_open());
    writer.write(EventRecord{});
    CHECK_FALSE(writer.is_open());
    writer.write(EventRecord{});
    CHECK(errors.str() ==
          "telemetry: " + path + ": No space left on device; no more metrics are written, training goes on\n");
}

TEST_CASE("a metrics file that cannot be opened is a configuration error") {
    const TemporaryDirectory folder;
    const std::string path = folder / "absent/metrics.jsonl";
    CHECK(mfsdp::test::message_of<mfsdp::ConfigError>([&] { MetricsWriter{path}; }) ==
          "config: " + path + ": cannot open: No such file or directory");
}
