#include "mfsdp/base/error.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/optim/muon.h"
#include "mfsdp/optim/shampoo.h"
#include "mfsdp/optim/soap.h"
#include "mfsdp/runtime/bench/benchmarks.h"
#include "mfsdp/runtime/bench/operations.h"
#include "mfsdp/runtime/config/link_calibration.h"
#include "mfsdp/runtime/train/capacity.h"

#include "runtime/bench/work_rates.h"
#include "support/catch.h"
#include "support/temporary_directory.h"
#include "support/training_run.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

using namespace mfsdp;

namespace {

constexpr runtime::TimingOptions kOnce{.warmups = 0, .least_repeats = 1, .most_repeats = 1, .seconds = 0.0};

template <class... Ops>
std::set<std::string_view> names(const device::OperationSlots<Ops...>*) {
    return {Ops::kName...};
}

model::ModelConfig tiny(model::ModelConfig config) {
    config.vocab_size = 50;
    config.hidden_size = config.intermediate_size = 16;
    config.num_hidden_layers = 1;
    config.num_attention_heads = 4;
    config.num_key_value_heads = config.family == model::ModelFamily::gpt2 ? 4 : 2;
    config.head_dim = 4;
    return config;
}

runtime::TrainConfig tiny_run(int ranks, runtime::Strategy strategy) {
    test::TrainingCase c;
    c.model = test::uneven_llama();
    c.ranks = ranks;
    c.strategy = strategy;
    c.micro_batches = 2 * ranks + 1;
    return test::training_config(c);
}

/// What `body` gives on rank 0 of `ranks` threads.
runtime::BenchTable on_ranks(int ranks, const std::function<runtime::BenchTable(const runtime::BenchContext&)>& body) {
    runtime::BenchTable result;
    comm::ThreadCluster cluster(ranks);
    cluster.run([&](comm::Communicator& communicator) {
        const auto device = device::make_cpu_device({});
        const runtime::Machine machine;
        runtime::BenchTable table = body({communicator, *device, machine, kOnce});
        if (communicator.rank() == 0) result = std::move(table);
    });
    return result;
}

runtime::BenchValue fact(const runtime::BenchTable& table, const std::string& name) {
    const auto found =
        std::find_if(table.facts.begin(), table.facts.end(), [&](const auto& entry) { return entry.first == name; });
    INFO(name);
    REQUIRE(found != table.facts.end());
    return found->second;
}

std::int64_t count(const runtime::BenchTable& table, const std::string& name) {
    return std::get<std::int64_t>(fact(table, name));
}

std::size_t column(const runtime::BenchTable& table, const std::string& key) {
    const auto found = std::find_if(table.columns.begin(), table.columns.end(),
                                    [&](const runtime::BenchColumn& candidate) { return candidate.key == key; });
    REQUIRE(found != table.columns.end());
    return static_cast<std::size_t>(found - table.columns.begin());
}

}  // namespace

TEST_CASE("the benchmark of operations has every operation of the table, and each runs") {
    std::set<std::string_view> covered;
    const auto device = device::make_cpu_device({});
    for (const model::ModelConfig& model : {tiny(runtime::gpt2_124m()), tiny(runtime::llama_1b())}) {
        for (const auto& operation : runtime::operation_cases(model, 2, 3, device::DType::float32)) {
            INFO(operation.operation << " " << operation.use << " " << operation.shape);
            const runtime::OperationFigures figures = runtime::measure(operation, *device, kOnce);
            CHECK(figures.timing.repeats == 1);
            CHECK(figures.timing.least_seconds > 0.0);
            CHECK(figures.cost.bytes > 0);
            covered.insert(operation.operation);
        }
    }
    REQUIRE(covered.size() > 20);
    CHECK(covered == names(static_cast<const device::OperationTable*>(nullptr)));
}

TEST_CASE("decompositions are timed at the longest side that has a factor") {
    const auto shampoo = optim::make_shampoo({.max_preconditioner_dim = 8});
    const auto soap = optim::make_soap({.max_preconditioner_dim = 8}), muon = optim::make_muon({.normuon = true});
    for (const optim::MatrixOptimizer* optimizer : {shampoo.get(), soap.get()}) {
        CHECK(runtime::factor_side(*optimizer, 8, 7) == 8);
        CHECK(runtime::factor_side(*optimizer, 4, 100000) == 4);
        CHECK(runtime::factor_side(*optimizer, 9, 3) == 3);
        CHECK(runtime::factor_side(*optimizer, 9, 9) == 0);
    }
    CHECK(runtime::factor_side(*muon, 8, 8) == 0);
}

TEST_CASE("products of a layer are timed at the layer's shapes") {
    std::map<std::string, std::string> shapes;
    for (const auto& operation : runtime::operation_cases(runtime::gpt2_124m(), 4, 64, device::DType::float32)) {
        if (operation.operation == "matmul") shapes[operation.use] = operation.shape;
    }
    CHECK(shapes.at("attn.c_attn forward") == "256 x 2304 x 768");
    CHECK(shapes.at("mlp.c_fc forward with GELU") == "256 x 3072 x 768");
    CHECK(shapes.at("mlp.c_fc input gradient") == "256 x 768 x 3072");
    CHECK(shapes.at("mlp.c_proj weight gradient") == "768 x 3072 x 256");
    CHECK(shapes.at("head panel forward") == "256 x 4096 x 768");
    CHECK(shapes.at("Newton-Schulz X X^T") == "768 x 768 x 3072");
}

TEST_CASE("median and least of given times") {
    CHECK(runtime::timing_of({3.0, 1.0, 2.0}).median_seconds == 2.0);
    CHECK(runtime::timing_of({4.0, 1.0, 2.0, 3.0}).median_seconds == 2.5);
    CHECK(runtime::timing_of({4.0, 1.0, 2.0, 3.0}).least_seconds == 1.0);
    CHECK(runtime::timing_of({7.0}).repeats == 1);
}

// Those marked slow measure what products a machine can do at most, on large ones.
TEST_CASE("a benchmark of steps reports what moved and what was planned, and they are equal", "[slow]") {
    for (const auto strategy : {runtime::Strategy::matrix_fsdp, runtime::Strategy::zero1_owner}) {
        const runtime::TrainConfig config = tiny_run(3, strategy);
        const runtime::BenchTable table =
            on_ranks(3, [&](const auto& context) { return runtime::bench_step(context, config, 2); });
        REQUIRE(table.rows.size() == 6);
        CHECK(count(table, "reduce bytes moved") > 0);
        for (const std::string what : {"gather", "reduce", "optimizer"}) {
            INFO(what);
            CHECK(count(table, what + " bytes moved") == count(table, what + " bytes planned"));
        }
        CHECK((count(table, "optimizer bytes moved") > 0) == (strategy == runtime::Strategy::zero1_owner));
        CHECK(count(table, "memory of a rank, bytes") == count(table, "memory of a rank planned, bytes"));
        const std::size_t median = column(table, "median_seconds"), flops = column(table, "flops");
        CHECK(std::get<double>(table.rows.back()[median]) > 0.0);
        CHECK(std::get<std::int64_t>(table.rows.back()[flops]) ==
              std::get<std::int64_t>(table.rows[2][flops]) + std::get<std::int64_t>(table.rows[3][flops]));
    }
}

TEST_CASE("a benchmark of the optimizer counts its work, and under matrix_fsdp nothing moves") {
    const runtime::TrainConfig config = tiny_run(3, runtime::Strategy::matrix_fsdp);
    const runtime::BenchTable table =
        on_ranks(3, [&](const auto& context) { return runtime::bench_optimizer(context, config, 2); });
    CHECK(count(table, "optimizer bytes moved") == 0);
    CHECK(std::get<double>(fact(table, "imbalance of FLOPs, maximum / mean")) >= 1.0);
    // The same work as a rehearsal of the whole configuration counts: it does not depend on tokens.
    std::int64_t flops = 0;
    for (const runtime::Rehearsal& rank : runtime::rehearse_all(runtime::plan_for_ranks(config, 3))) {
        flops += rank.optimizer_flops;
    }
    CHECK(std::get<std::int64_t>(table.rows[0][column(table, "flops")]) == flops);
}

TEST_CASE("a benchmark of the optimizer puts the predicted time beside the measured one, for every optimizer",
          "[slow]") {
    using runtime::MatrixOptimizerName;
    for (const auto name : {MatrixOptimizerName::none, MatrixOptimizerName::muon, MatrixOptimizerName::shampoo,
                            MatrixOptimizerName::soap}) {
        const bool decomposes = name == MatrixOptimizerName::shampoo || name == MatrixOptimizerName::soap;
        if (decomposes && !device::cpu_has_lapack()) continue;
        runtime::TrainConfig config = tiny_run(2, runtime::Strategy::matrix_fsdp);
        config.optimizer.matrix.name = name;
        config.optimizer.matrix.shampoo.precondition_frequency = config.optimizer.matrix.soap.precondition_frequency =
            2;
        const runtime::BenchTable table =
            on_ranks(2, [&](const auto& context) { return runtime::bench_optimizer(context, config, 2); });
        INFO("optimizer " << static_cast<int>(name));
        const auto figure = [&](const std::string& of) { return std::get<double>(fact(table, of)); };
        const double measured = figure("mean seconds of the slowest rank, measured");
        const double predicted = figure("mean seconds of the slowest rank, predicted");
        CHECK(measured > 0.0);
        CHECK(predicted > 0.0);
        CHECK(figure("measured / predicted") == Approx(measured / predicted));
        CHECK(figure("products, FLOP/s of a rank") > 0.0);
        if (name == MatrixOptimizerName::shampoo) CHECK(figure("eigen-decompositions, FLOP/s of a rank") > 0.0);
        if (name == MatrixOptimizerName::soap) CHECK(figure("QR, FLOP/s of a rank") > 0.0);
    }
}

TEST_CASE("a benchmark of single matrices has every optimizer, its work and a prediction") {
    const std::vector<runtime::MatrixShape> shapes{{12, 20}, {16, 16}};
    for (const bool decomposes : {false, true}) {
        if (decomposes && !device::cpu_has_lapack()) continue;
        const runtime::BenchTable table = on_ranks(1, [&](runtime::BenchContext context) {
            context.decomposes = decomposes;
            return runtime::bench_matrices(context, shapes);
        });
        std::map<std::string, std::vector<runtime::BenchValue>> rows;
        for (const auto& row : table.rows)
            rows[std::get<std::string>(row[0]) + " " + std::get<std::string>(row[1])] = row;
        REQUIRE(rows.size() == shapes.size() * (decomposes ? 14 : 8));
        REQUIRE(rows.size() == table.rows.size());
        const auto flops = [&](const std::string& row) { return std::get<double>(rows.at(row)[3]); };
        // Five steps: 4 s^2 l + 2 s^3 as whole products, 3 s^2 l + s^3 by triangles; Gram 6 s^2 l + 14 s^3.
        CHECK(flops("12 x 20 Newton-Schulz, plain loop") == 5 * (4 * 144 * 20 + 2 * 1728));
        CHECK(flops("12 x 20 Newton-Schulz") == 5 * (3 * 144 * 20 + 1728));
        CHECK(flops("12 x 20 Newton-Schulz, Gram in float16") == 6 * 144 * 20 + 14 * 1728);
        for (const auto& [name, row] : rows) {
            INFO(name);
            const double seconds = std::get<double>(row[2]);
            CHECK(seconds > 0.0);
            CHECK(std::get<double>(row[4]) == Approx(std::get<double>(row[3]) / seconds));
            const bool reference =
                name.find("plain loop") != std::string::npos || name.find("product") != std::string::npos;
            REQUIRE(std::holds_alternative<double>(row[6]) == !reference);
            if (!reference) CHECK(std::get<double>(row[7]) == Approx(seconds / std::get<double>(row[6])));
        }
        if (!decomposes) continue;
        const auto time = [&](const std::string& row) { return std::get<double>(rows.at(row)[2]); };
        for (const std::string name : {"12 x 20 Shampoo", "16 x 16 SOAP"}) {
            CHECK(flops(name + ", step with a refresh") > flops(name + ", step"));
            CHECK(time(name + ", mean of 10 steps") ==
                  Approx(0.9 * time(name + ", step") + 0.1 * time(name + ", step with a refresh")));
        }
    }
}

TEST_CASE("a benchmark of transfers moves the planned bytes of every group") {
    for (const int ranks : {1, 3}) {
        const runtime::TrainConfig config = tiny_run(ranks, runtime::Strategy::matrix_fsdp);
        const runtime::BenchTable table =
            on_ranks(ranks, [&](const auto& context) { return runtime::bench_gather(context, config); });
        const runtime::RunPlan run = runtime::plan_for_ranks(config, ranks);
        REQUIRE(table.rows.size() == 2 * run.plan.groups.size());
        std::int64_t moved = 0;
        for (const auto& row : table.rows) {
            CHECK(row[column(table, "moved_bytes")] == row[column(table, "planned_bytes")]);
            moved += std::get<std::int64_t>(row[column(table, "moved_bytes")]);
        }
        CHECK((moved > 0) == (ranks > 1));
    }
}

TEST_CASE("calibration writes a file that parallel.calibration reads") {
    const test::TemporaryDirectory directory;
    const std::string path = directory / "links.json";
    const runtime::BenchEnvironment environment{.program = "test", .host = "n1", .ranks = 3};
    const runtime::BenchTable table = on_ranks(3, [&](const auto& context) {
        return runtime::bench_calibrate(context, environment,
                                        [&](const std::string& text) { test::write_file(path, text); });
    });
    REQUIRE(table.rows.size() == 2);
    CHECK(std::get<std::int64_t>(table.rows[0][1]) == 3);  // pairs of three ranks on one node
    CHECK(std::holds_alternative<std::monostate>(table.rows[1][2]));
    const runtime::LinkCalibration links = runtime::read_link_calibration(path);
    REQUIRE(links.within_node);
    CHECK(links.within_node->latency_seconds == std::get<double>(table.rows[0][2]));
    CHECK(links.within_node->bytes_per_second == std::get<double>(table.rows[0][3]));
    CHECK_FALSE(links.between_nodes);

    runtime::TrainConfig config = tiny_run(3, runtime::Strategy::matrix_fsdp);
    config.parallel.calibration = path;
    const runtime::RunPlan run = runtime::plan_for_ranks(config, 3);
    CHECK(run.engine.store.links.latency_seconds_within_node == links.within_node->latency_seconds);
    CHECK(run.engine.store.links.bytes_per_second_within_node == links.within_node->bytes_per_second);
    CHECK(run.engine.store.links.bytes_per_second_local == links.local_bytes_per_second);
    CHECK_THROWS_AS(runtime::make_run_plan(config, {0, 0, 1}),
                    mfsdp::ConfigError);  // two nodes, no cost of links between
}

TEST_CASE("a benchmark's table and its JSON hold the same figures") {
    runtime::BenchTable table{.benchmark = "ops",
                              .columns = {{"name", "name"}, {"seconds", "ms", 1e3, 1}, {"bytes", "B"}}};
    table.fact("peak", 1.5e11);
    table.row({std::string("a"), 0.0015, std::int64_t{7}});
    table.row({std::string("long name"), {}, std::int64_t{1234}});
    const runtime::BenchEnvironment environment{.program = "p", .compiler = "c", .processor = "x", .cores = 2};
    CHECK(runtime::bench_text(table, environment)
              .find("name        ms     B\n"
                    "a          1.5     7\n"
                    "long name    -  1234\n") != std::string::npos);
    const auto document = nlohmann::json::parse(runtime::bench_json(table, environment));
    CHECK(document.at("facts").at("peak") == 1.5e11);
    CHECK(document.at("environment").at("processor") == "x");
    CHECK(document.at("rows")[0] == nlohmann::json{{"name", "a"}, {"seconds", 0.0015}, {"bytes", 7}});
    CHECK(document.at("rows")[1].at("seconds").is_null());
}
