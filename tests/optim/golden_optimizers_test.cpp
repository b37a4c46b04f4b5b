#include "optim/bench.h"
#include "optim/golden_support.h"
#include "support/catch.h"

#include <iostream>

using namespace mfsdp;
using namespace mfsdp::optim;
using namespace mfsdp::optim::test;

namespace {

using nlohmann::json;

Exact matrix_of(const json& rows) {
    Exact result(static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows.at(0).size()));
    for (std::int64_t r = 0; r < result.rows; ++r) {
        const json& row = rows[static_cast<std::size_t>(r)];
        REQUIRE(static_cast<std::int64_t>(row.size()) == result.columns);
        for (std::int64_t c = 0; c < result.columns; ++c)
            result.at(r, c) = row[static_cast<std::size_t>(c)].get<double>();
    }
    return result;
}

/// The rule of the golden directory: max|got - want| <= tolerance * max|want|; an array of zeros is met exactly.
bool compare(const json& test_case, const std::string& field, const json& want, const Matrix& got) {
    const double tolerance = test_case.at("tolerance").at("fp32").at(field).get<double>();
    INFO("case " << test_case.at("name").get<std::string>() << ", field " << field << ", tolerance " << tolerance);
    const double error = error_of(got, matrix_of(want));
    CHECK(error <= tolerance);
    return error <= tolerance;
}

/// Compares every array of one expected step; at least one there must be.
bool compare_step(const json& test_case, const json& want, const std::map<std::string, Matrix>& got) {
    std::size_t compared = 0;
    bool passed = true;
    for (const auto& [field, value] : want.items()) {
        if (!value.is_array()) continue;
        INFO("case " << test_case.at("name").get<std::string>() << ", field " << field);
        REQUIRE(got.count(field) == 1);
        passed = compare(test_case, field, value, got.at(field)) && passed;
        ++compared;
    }
    REQUIRE(compared >= 1);
    return passed;
}

bool run_newton_schulz(const json& test_case) {
    Hyperparameters values(test_case.at("hyperparameters"));
    const CoefficientType type = take_table(values);
    const auto steps = values.take<std::int64_t>("muon_num_ns_steps");
    values.drop("muon_ns_dtype");
    INFO(values.rest());
    REQUIRE(values.empty());
    Bench bench({.threads = 2});
    const device::Tensor in = bench.upload(convert<float>(matrix_of(test_case.at("inputs").at("matrix"))));
    const device::Tensor out = bench.make(in.rows(), in.columns());
    newton_schulz(bench.stream(), bench.workspace(), out, in, type, steps);
    return compare_step(test_case, test_case.at("expected"), {{"matrix", bench.download(out)}});
}

std::vector<model::RowBlock> row_blocks(const json& inputs, std::int64_t rows) {
    if (!inputs.contains("row_blocks")) return {{"all", 0, rows}};
    std::vector<model::RowBlock> blocks;
    std::int64_t row = 0;
    for (const json& entry : inputs.at("row_blocks")) {
        blocks.push_back({"block " + std::to_string(blocks.size()), row, entry.get<std::int64_t>()});
        row += blocks.back().row_count;
    }
    REQUIRE(row == rows);
    return blocks;
}

/// The direction of every block, from a copy of the momentum.
Matrix muon_direction(Bench& bench, MatrixOptimizer& muon, const device::Tensor& gradient, const Matrix& momentum,
                      const std::vector<model::RowBlock>& blocks) {
    const device::Tensor states[] = {bench.upload(momentum)};
    const device::Tensor update = bench.make(gradient.rows(), gradient.columns());
    const device::Tensor out = bench.make(gradient.rows(), gradient.columns());
    muon.accumulate(bench.stream(), update, gradient, states, {});
    for (const model::RowBlock& block : blocks) {
        const BlockWork work{.out = out.slice(0, block.row_begin, block.row_count),
                             .input = update.slice(0, block.row_begin, block.row_count),
                             .averages = {},
                             .states = {}};
        muon.direction(bench.stream(), bench.workspace(), std::span(&work, 1), 1);
    }
    return bench.download(out);
}

bool run_muon(const json& test_case) {
    Hyperparameters values(test_case.at("hyperparameters"));
    const Rated<MuonOptions> rated = take_muon(values);
    INFO(values.rest());
    REQUIRE(values.empty());
    Bench bench({.threads = 2});
    const auto muon = make_muon(rated.options);
    const json& inputs = test_case.at("inputs");
    const device::Tensor weight = bench.upload(convert<float>(matrix_of(inputs.at("weight"))));
    const device::Tensor states[] = {bench.zeros(weight.rows(), weight.columns())};
    const auto blocks = row_blocks(inputs, weight.rows());
    const json& steps = test_case.at("expected").at("steps");
    REQUIRE(!steps.empty());
    bool passed = true;
    REQUIRE(steps.size() <= inputs.at("gradients").size());
    for (std::size_t k = 0; k < steps.size(); ++k) {
        const device::Tensor gradient = bench.upload(convert<float>(matrix_of(inputs.at("gradients")[k])));
        const Matrix direction = muon_direction(bench, *muon, gradient, bench.download(states[0]), blocks);
        muon->step(bench.stream(), bench.workspace(),
                   {.weight = weight,
                    .gradient = gradient,
                    .states = states,
                    .blocks = blocks,
                    .learning_rate = rated.learning_rate,
                    .weight_decay = rated.weight_decay,
                    .step = static_cast<std::int64_t>(k) + 1});
        passed = compare_step(test_case, steps[k],
                              {{"weight", bench.download(weight)},
                               {"momentum", bench.download(states[0])},
                               {"direction", direction}}) &&
                 passed;
    }
    return passed;
}

bool run_adamw(const json& test_case) {
    Hyperparameters values(test_case.at("hyperparameters"));
    const Rated<AdamWOptions> rated = take_adamw(values);
    INFO(values.rest());
    REQUIRE(values.empty());
    Bench bench({.threads = 2});
    const json& inputs = test_case.at("inputs");
    const device::Tensor weight = bench.upload(convert<float>(matrix_of(inputs.at("weight"))));
    const device::Tensor exp_avg = bench.zeros(weight.rows(), weight.columns());
    const device::Tensor exp_avg_sq = bench.zeros(weight.rows(), weight.columns());
    const json& steps = test_case.at("expected").at("steps");
    REQUIRE(!steps.empty());
    bool passed = true;
    REQUIRE(steps.size() <= inputs.at("gradients").size());
    for (std::size_t k = 0; k < steps.size(); ++k) {
        adamw_step(bench.stream(), rated.options,
                   {.weight = weight,
                    .gradient = bench.upload(convert<float>(matrix_of(inputs.at("gradients")[k]))),
                    .exp_avg = exp_avg,
                    .exp_avg_sq = exp_avg_sq,
                    .learning_rate = rated.learning_rate,
                    .weight_decay = rated.weight_decay,
                    .step = static_cast<std::int64_t>(k) + 1});
        passed = compare_step(test_case, steps[k],
                              {{"weight", bench.download(weight)},
                               {"exp_avg", bench.download(exp_avg)},
                               {"exp_avg_sq", bench.download(exp_avg_sq)}}) &&
                 passed;
    }
    return passed;
}

/// Why this library cannot run a case, if it cannot.
std::optional<std::string> unsupported(const json& test_case) {
    const auto optimizer = test_case.at("optimizer").get<std::string>();
    if (optimizer != "newton_schulz" && optimizer != "muon" && optimizer != "adamw") return optimizer;
    return unsupported_muon_feature(test_case.at("hyperparameters"));
}

bool run(const json& test_case) {
    const auto optimizer = test_case.at("optimizer").get<std::string>();
    if (optimizer == "newton_schulz") return run_newton_schulz(test_case);
    return optimizer == "muon" ? run_muon(test_case) : run_adamw(test_case);
}

void print(const std::string& label, const std::map<std::string, int>& counts) {
    int total = 0;
    std::string parts;
    for (const auto& [key, count] : counts) {
        total += count;
        parts += (parts.empty() ? "" : ", ") + key + " " + std::to_string(count);
    }
    std::cout << "golden optimizers: " << total << ' ' << label << (parts.empty() ? "" : " (" + parts + ")") << '\n';
}

}  // namespace

TEST_CASE("golden optimizers: every case of the file that this library supports is met", "[optim][golden]") {
    const json file = read_json(golden_directory() / "optimizers.json");
    std::map<std::string, int> passed, failed, skipped;
    for (const json& test_case : file.at("cases")) {
        if (const auto reason = unsupported(test_case)) {
            ++skipped[*reason];
            continue;
        }
        const auto optimizer = test_case.at("optimizer").get<std::string>();
        ++(run(test_case) ? passed : failed)[optimizer];
    }
    print("cases passed", passed);
    print("failed", failed);
    print("skipped, not supported", skipped);
    CHECK(failed.empty());
    CHECK(!passed.empty());
}

TEST_CASE("golden optimizers: the coefficient tables are those of the file", "[optim][golden]") {
    const json tables = read_json(golden_directory() / "optimizers.json").at("coefficient_rows");
    std::size_t compared = 0;
    for (const auto& [label, rows] : tables.items()) {
        Hyperparameters values(json{{"muon_coefficients", label}});
        const CoefficientType type = take_table(values);
        for (std::size_t k = 0; k < rows.size(); ++k) {
            const auto got = newton_schulz_coefficients(type, static_cast<std::int64_t>(k));
            for (std::size_t i = 0; i < 3; ++i) {
                CHECK(got[i] == Approx(rows[k].at(i).get<double>()).epsilon(1e-14));
                ++compared;
            }
        }
    }
    CHECK(compared > 0);
}
