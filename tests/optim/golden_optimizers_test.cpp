#include "mfsdp/device/device.h"

#include "optim/bench.h"
#include "optim/golden_support.h"
#include "optim/newton_schulz_reference.h"
#include "support/catch.h"
#include "support/cuda_devices.h"

#include <algorithm>
#include <cmath>
#include <iostream>

using namespace mfsdp;
using namespace mfsdp::optim;
using namespace mfsdp::optim::test;

namespace {

using mfsdp::test::MakeDevice;
using nlohmann::json;

/// Arrays that were compared, and how many of them lie beyond their tolerance.
struct Outcome {
    std::size_t compared = 0, failed = 0;

    Outcome& operator+=(const Outcome& other) {
        compared += other.compared;
        failed += other.failed;
        return *this;
    }
};

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
Outcome compare(const json& test_case, const std::string& field, const json& want, const Matrix& got) {
    const double tolerance = test_case.at("tolerance").at("fp32").at(field).get<double>();
    INFO("case " << test_case.at("name").get<std::string>() << ", field " << field << ", tolerance " << tolerance);
    const double error = error_of(got, matrix_of(want));
    CHECK(error <= tolerance);
    return {.compared = 1, .failed = error <= tolerance ? std::size_t{0} : std::size_t{1}};
}

/// Compares every array of one expected step; at least one there must be.
Outcome compare_step(const json& test_case, const json& want, const std::map<std::string, Matrix>& got) {
    Outcome outcome;
    for (const auto& [field, value] : want.items()) {
        if (!value.is_array()) continue;
        INFO("case " << test_case.at("name").get<std::string>() << ", field " << field);
        REQUIRE(got.count(field) == 1);
        outcome += compare(test_case, field, value, got.at(field));
    }
    REQUIRE(outcome.compared >= 1);
    return outcome;
}

Matrix newton_schulz_of(Bench& bench, const json& test_case, Hyperparameters values) {
    const NewtonSchulzOptions options{.coefficient_type = take_table(values),
                                      .steps = values.take<std::int64_t>("muon_num_ns_steps"),
                                      .dtype = take_ns_dtype(values),
                                      .method = take_ns_method(values)};
    INFO(values.rest());
    REQUIRE(values.empty());
    const device::Tensor in = bench.upload(convert<float>(matrix_of(test_case.at("inputs").at("matrix"))));
    const device::Tensor out = bench.make(in.rows(), in.columns());
    newton_schulz(bench.stream(), bench.workspace(), out, in, options);
    return bench.download(out);
}

Outcome run_newton_schulz(Bench& bench, const json& test_case) {
    const Matrix got = newton_schulz_of(bench, test_case, Hyperparameters(test_case.at("hyperparameters")));
    return compare_step(test_case, test_case.at("expected"), {{"matrix", got}});
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

/// A parameter of a case under its optimizer.
class GoldenMatrix {
  public:
    GoldenMatrix(Bench& bench, MatrixOptimizer& optimizer, const json& inputs)
        : bench_(bench),
          optimizer_(optimizer),
          weight_(bench.upload(convert<float>(matrix_of(inputs.at("weight"))))),
          blocks_(row_blocks(inputs, weight_.rows())),
          specs_(optimizer.states(weight_.rows(), weight_.columns(), blocks_)) {
        for (const StateSpec& spec : specs_) states_.push_back(bench.state(spec));
    }

    void step(const Matrix& gradient, double learning_rate, double weight_decay, std::int64_t t) {
        const device::Tensor source = bench_.upload(gradient);
        // What direction reads is there before the step for Muon, and after it for Shampoo.
        if (optimizer_.direction_reads_input()) direction_ = direction(source, copies(), t);
        optimizer_.step(bench_.stream(), bench_.workspace(),
                        {.weight = weight_,
                         .gradient = source,
                         .states = states_,
                         .blocks = blocks_,
                         .learning_rate = learning_rate,
                         .weight_decay = weight_decay,
                         .step = t});
        if (!optimizer_.direction_reads_input()) direction_ = direction(source, states_, t);
    }

    /// Everything a case may expect, by the names of the file.
    [[nodiscard]] std::map<std::string, Matrix> fields() {
        std::map<std::string, Matrix> result{{"weight", bench_.download(weight_)}, {"direction", direction_}};
        for (std::size_t i = 0; i < specs_.size(); ++i) {
            if (specs_[i].dtype == device::DType::float32) append(result[specs_[i].name], states_[i]);
        }
        for (const std::string side : {"left", "right"}) {
            if (result.count(side + "_basis") == 1) result[side + "_basis_abs"] = absolute(result.at(side + "_basis"));
        }
        if (result.count("exp_avg") == 1) result["exp_avg_in_parameter_basis"] = out_of_basis(result);
        return result;
    }

  private:
    [[nodiscard]] std::vector<device::Tensor> copies() {
        std::vector<device::Tensor> result;
        for (std::size_t i = 0; i < specs_.size(); ++i) {
            result.push_back(bench_.state(specs_[i]));
            device::launch(bench_.stream(), device::Copy{.out = result.back(), .in = states_[i]});
        }
        return result;
    }

    /// The direction of every block, by the parts that a step is made of.
    [[nodiscard]] Matrix direction(const device::Tensor& gradient, std::vector<device::Tensor> states, std::int64_t t) {
        if (!optimizer_.directs(t)) return Matrix(gradient.rows(), gradient.columns());
        const auto matrix = [&] { return bench_.make(gradient.rows(), gradient.columns()); };
        const device::Tensor out = matrix(), input = matrix();
        std::vector<device::Tensor> averages;
        for (std::int64_t i = 0; i < optimizer_.averages(); ++i) averages.push_back(matrix());
        const auto elements = static_cast<std::size_t>(
            std::count_if(specs_.begin(), specs_.end(), [](const StateSpec& spec) { return spec.element; }));
        const std::span<const device::Tensor> all(states);
        if (optimizer_.direction_reads_input()) {
            optimizer_.accumulate(bench_.stream(), input, {}, gradient, all.first(elements), {});
        } else {
            optimizer_.average(bench_.stream(), averages, all.first(elements), t);
        }
        const std::span<const device::Tensor> rest = all.subspan(elements);
        const std::size_t count = rest.size() / blocks_.size();
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            const model::RowBlock& block = blocks_[i];
            const auto part = [&](const device::Tensor& whole) {
                return whole.slice(0, block.row_begin, block.row_count);
            };
            std::vector<device::Tensor> parts;
            for (const device::Tensor& average : averages) parts.push_back(part(average));
            const BlockWork work{.rows = block.row_count,
                                 .columns = gradient.columns(),
                                 .out = part(out),
                                 .input = part(input),
                                 .averages = parts,
                                 .states = rest.subspan(i * count, count)};
            optimizer_.direction(bench_.stream(), bench_.workspace(), std::span(&work, 1), t);
        }
        return bench_.download(out);
    }

    /// States of the blocks of a fused parameter follow each other row by row; a vector is a column.
    void append(Matrix& all, const device::Tensor& state) {
        const Matrix more = bench_.download(state.rank == 2 ? state : state.reshape({state.count(), 1}));
        all.rows += more.rows;
        all.columns = more.columns;
        all.values.insert(all.values.end(), more.values.begin(), more.values.end());
    }

    static Matrix absolute(Matrix matrix) {
        for (float& value : matrix.values) value = std::abs(value);
        return matrix;
    }

    /// Q_L m Q_R^T, a side without basis left as it is.
    static Matrix out_of_basis(const std::map<std::string, Matrix>& fields) {
        Exact result = convert<double>(fields.at("exp_avg"));
        if (fields.count("left_basis") == 1) result = product(convert<double>(fields.at("left_basis")), result);
        if (fields.count("right_basis") == 1) {
            result = product(result, transposed(convert<double>(fields.at("right_basis"))));
        }
        return convert<float>(result);
    }

    Bench& bench_;
    MatrixOptimizer& optimizer_;
    device::Tensor weight_;
    std::vector<model::RowBlock> blocks_;
    std::vector<StateSpec> specs_;
    std::vector<device::Tensor> states_;
    Matrix direction_;
};

template <class Options>
Outcome run_matrix_optimizer(Bench& bench, const json& test_case, const Rated<Options>& rated,
                             MatrixOptimizer& optimizer) {
    const json& inputs = test_case.at("inputs");
    GoldenMatrix matrix(bench, optimizer, inputs);
    const json& steps = test_case.at("expected").at("steps");
    REQUIRE(!steps.empty());
    REQUIRE(steps.size() <= inputs.at("gradients").size());
    Outcome outcome;
    for (std::size_t k = 0; k < steps.size(); ++k) {
        matrix.step(convert<float>(matrix_of(inputs.at("gradients")[k])), rated.learning_rate, rated.weight_decay,
                    static_cast<std::int64_t>(k) + 1);
        outcome += compare_step(test_case, steps[k], matrix.fields());
    }
    return outcome;
}

/// Runs a case with what `take` reads and `make` makes of its hyperparameters; none may be left over.
template <class Take, class Make>
Outcome run_with(Bench& bench, const json& test_case, const Take& take, const Make& make) {
    Hyperparameters values(test_case.at("hyperparameters"));
    const auto rated = take(values);
    INFO(values.rest());
    REQUIRE(values.empty());
    return run_matrix_optimizer(bench, test_case, rated, *make(rated.options));
}

Outcome run_root(Bench& bench, const json& test_case) {
    Hyperparameters values(test_case.at("hyperparameters"));
    device::InverseRoots roots{.count = 1,
                               .workspace = {},
                               .order = values.take<std::int64_t>("shampoo_root"),
                               .epsilon = values.take<double>("shampoo_epsilon"),
                               .relative = take_epsilon_mode(values) == EpsilonMode::relative};
    INFO(values.rest());
    REQUIRE(values.empty());
    const device::Tensor factor = bench.upload(convert<float>(matrix_of(test_case.at("inputs").at("matrix"))));
    const device::Tensor root = bench.make(factor.rows(), factor.rows());
    const device::Tensor scratch = bench.make(1, device::InverseRoots::task_floats(factor.rows()));
    const StateSpec status{.name = "status", .shape = {}, .element = false, .dtype = device::DType::int64};
    roots.tasks[0] = {factor, root, bench.state(status)};
    roots.workspace = scratch.reshape({scratch.count()});
    device::launch(bench.stream(), roots);
    return compare_step(test_case, test_case.at("expected"), {{"matrix", bench.download(root)}});
}

Outcome run_qk_clip(Bench& bench, const json& test_case) {
    Hyperparameters values(test_case.at("hyperparameters"));
    const auto threshold = values.take<double>("qk_clip_threshold"), alpha = values.take<double>("qk_clip_alpha");
    INFO(values.rest());
    REQUIRE(values.empty());
    const json& inputs = test_case.at("inputs");
    const device::Tensor query = bench.upload(convert<float>(matrix_of(inputs.at("query_weight"))));
    const device::Tensor key = bench.upload(convert<float>(matrix_of(inputs.at("key_weight"))));
    Matrix logits(1, static_cast<std::int64_t>(inputs.at("max_logits").size()));
    for (std::size_t h = 0; h < logits.values.size(); ++h) logits.values[h] = inputs.at("max_logits")[h].get<float>();
    const device::Tensor largest = bench.upload(logits);
    const std::int64_t key_heads = key.rows() / inputs.at("head_dim").get<std::int64_t>();
    const auto clip = [&](const device::Tensor& weight, double exponent) {
        device::launch(bench.stream(), device::QkClip{.weight = weight,
                                                      .logits = largest.reshape({largest.count()}),
                                                      .key_heads = key_heads,
                                                      .rows_in_group = weight.rows() / key_heads,
                                                      .threshold = threshold,
                                                      .exponent = exponent});
    };
    clip(query, alpha);
    clip(key, 1.0 - alpha);
    return compare_step(test_case, test_case.at("expected"),
                        {{"query_weight", bench.download(query)}, {"key_weight", bench.download(key)}});
}

Outcome run_adamw(Bench& bench, const json& test_case) {
    Hyperparameters values(test_case.at("hyperparameters"));
    const Rated<AdamWOptions> rated = take_adamw(values);
    INFO(values.rest());
    REQUIRE(values.empty());
    const json& inputs = test_case.at("inputs");
    const device::Tensor weight = bench.upload(convert<float>(matrix_of(inputs.at("weight"))));
    const device::Tensor exp_avg = bench.zeros(weight.rows(), weight.columns());
    const device::Tensor exp_avg_sq = bench.zeros(weight.rows(), weight.columns());
    const json& steps = test_case.at("expected").at("steps");
    REQUIRE(!steps.empty());
    Outcome outcome;
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
        outcome += compare_step(test_case, steps[k],
                                {{"weight", bench.download(weight)},
                                 {"exp_avg", bench.download(exp_avg)},
                                 {"exp_avg_sq", bench.download(exp_avg_sq)}});
    }
    return outcome;
}

Outcome run(Bench& bench, const json& test_case) {
    const auto optimizer = test_case.at("optimizer").get<std::string>();
    if (optimizer == "newton_schulz") return run_newton_schulz(bench, test_case);
    if (optimizer == "muon") return run_with(bench, test_case, take_muon, make_muon);
    if (optimizer == "shampoo") return run_with(bench, test_case, take_shampoo, make_shampoo);
    if (optimizer == "shampoo_root") return run_root(bench, test_case);
    if (optimizer == "soap") return run_with(bench, test_case, take_soap, make_soap);
    if (optimizer == "qk_clip") return run_qk_clip(bench, test_case);
    REQUIRE(optimizer == "adamw");
    return run_adamw(bench, test_case);
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

/// The arrays that the cases of a file expect, counted without running any.
std::size_t expected_arrays(const json& file) {
    std::size_t count = 0;
    for (const json& test_case : file.at("cases")) {
        const json& expected = test_case.at("expected");
        for (const json& step : expected.contains("steps") ? expected.at("steps") : json::array({expected})) {
            count += static_cast<std::size_t>(
                std::count_if(step.begin(), step.end(), [](const json& value) { return value.is_array(); }));
        }
    }
    return count;
}

void check_cases(Bench& bench) {
    const json file = read_json(golden_directory() / "optimizers.json");
    std::map<std::string, int> passed, failed;
    Outcome total;
    for (const json& test_case : file.at("cases")) {
        const Outcome outcome = run(bench, test_case);
        ++(outcome.failed == 0 ? passed : failed)[test_case.at("optimizer").get<std::string>()];
        total += outcome;
    }
    print("cases passed", passed);
    print("failed", failed);
    CHECK(failed.empty());
    CHECK(passed.size() == 7);
    CHECK(total.compared == expected_arrays(file));
    CHECK(total.compared > 1000);
}

void check_forms(Bench& bench) {
    struct Form {
        std::string dtype, method;
        double tolerance;  // of the difference's Frobenius norm
    };
    // 3 %, 0.5 % and 1 % hold for large matrices; where there are two or three singular values nothing averages out.
    const std::vector<Form> forms{{"float32", "gram", 1e-4},
                                  {"bfloat16", "standard", 0.04},
                                  {"float16", "standard", 0.01},
                                  {"float16", "gram", 0.015}};
    const json file = read_json(golden_directory() / "optimizers.json");
    std::map<std::string, int> compared;
    for (const json& test_case : file.at("cases")) {
        const auto name = test_case.at("name").get<std::string>();
        // 16 bits fill the directions that a matrix does not have with noise: a property of the method.
        const bool deficient = name.find("rank") != std::string::npos || name.find("zero") != std::string::npos;
        if (test_case.at("optimizer") != "newton_schulz" || deficient) continue;
        const Exact want = matrix_of(test_case.at("expected").at("matrix"));
        for (const Form& form : forms) {
            json values = test_case.at("hyperparameters");
            values["muon_ns_dtype"] = form.dtype;
            values["muon_ns_method"] = form.method;
            Exact difference = convert<double>(newton_schulz_of(bench, test_case, Hyperparameters(values)));
            for (std::size_t i = 0; i < want.values.size(); ++i) difference.values[i] -= want.values[i];
            INFO(name << " in " << form.dtype << ", " << form.method);
            CHECK(frobenius(difference) <= form.tolerance * frobenius(want));
            ++compared[form.dtype + " " + form.method];
        }
    }
    print("directions near", compared);
    REQUIRE(compared.size() == forms.size());
}

}  // namespace

TEST_CASE("golden optimizers: every case of the file is met", "[optim][golden]") {
    Bench bench({.threads = 2});
    check_cases(bench);
}

TEST_CASE("golden optimizers: Gram and 16-bit iterates stay near the directions of the file", "[optim][golden]") {
    Bench bench({.threads = 2});
    check_forms(bench);
}

TEST_CASE("golden optimizers on the emulated CUDA device: every case, Gram and 16-bit iterates", "[optim][golden]") {
    for (const MakeDevice& make :
         mfsdp::test::emulated_cuda_devices({"asynchronous=0", "asynchronous=1,backwards=1"})) {
        Bench bench = Bench::on(make());
        check_cases(bench);
        check_forms(bench);
    }
}

TEST_CASE("golden optimizers on a GPU: every case, Gram and 16-bit iterates", "[optim][golden][cuda]") {
    for (const MakeDevice& make : mfsdp::test::gpu_devices()) {
        Bench bench = Bench::on(make());
        check_cases(bench);
        check_forms(bench);
    }
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
