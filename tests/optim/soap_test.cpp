#include "mfsdp/optim/soap.h"

#include "mfsdp/optim/adamw.h"

#include "optim/soap_reference.h"
#include "support/catch.h"
#include "support/cuda_devices.h"
#include "support/lapack.h"

#include <cmath>

using namespace mfsdp;
using namespace mfsdp::optim;
using namespace mfsdp::optim::test;
using mfsdp::test::cpu_and_emulated_cuda;
using mfsdp::test::NamedDevice;

TEST_CASE("SOAP follows a plain double loop in every mode, with one side and with two", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    Bench bench({.threads = 2});
    std::vector<SoapOptions> all;
    for (const bool one_sided : {false, true}) {
        for (const std::int64_t frequency : {1, 3}) {
            const SoapOptions plain{.one_sided = one_sided, .precondition_frequency = frequency};
            all.push_back(plain);
            all.push_back(plain);
            all.back().epsilon_mode = BiasEpsilon::corrected;
            all.back().decay_order = DecayOrder::before;
            all.push_back(plain);
            all.back().normalize_update = true;
            all.back().shampoo_beta = 0.8;
            all.push_back(plain);
            all.back().skip_first_step = false;
            all.back().epsilon = 0.02;
            all.push_back(plain);
            all.back().bias_correction = false;
            all.back().stagger_refresh = true;
            all.push_back(plain);
            all.back().max_preconditioner_dim = 11;
        }
    }
    for (std::size_t k = 0; k < all.size(); ++k) {
        const auto soap = make_soap(all[k]);
        OptimizerRun run(bench, *soap, kSoapWeight);
        run.number = 5;
        SoapReference reference(all[k], 12, 11);
        reference.number = run.number;
        Exact weight = convert<double>(kSoapWeight);
        for (std::int64_t t = 1; t <= 9; ++t) {
            run.step(soap_gradient(t));
            reference.step(t, convert<double>(soap_gradient(t)), run.learning_rate, run.weight_decay, weight);
            INFO("options " << k << ", step " << t);
            CHECK(error_of(run.weight(), weight) < 1e-4);
        }
    }
}

TEST_CASE("On diagonal gradients SOAP is Adam without the first gradient", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const NamedDevice tested = GENERATE(from_range(cpu_and_emulated_cuda()));
    INFO("on " << tested.name);
    Bench bench = Bench::on(tested.make());
    const SoapOptions options{
        .epsilon_mode = BiasEpsilon::corrected, .decay_order = DecayOrder::before, .precondition_frequency = 2};
    const auto soap = make_soap(options);
    Matrix initial(6, 6);
    for (std::int64_t i = 0; i < 6; ++i) initial.at(i, i) = static_cast<float>(1 + i);
    OptimizerRun run(bench, *soap, initial);
    const device::Tensor weight = bench.upload(initial);
    const device::Tensor exp_avg = bench.zeros(6, 6), exp_avg_sq = bench.zeros(6, 6);
    for (std::int64_t t = 1; t <= 7; ++t) {
        Matrix diagonal(6, 6);  // its entries keep falling, so that no order changes
        const Exact noise = gaussian(1, 6, 200 + static_cast<std::uint64_t>(t));
        for (std::int64_t i = 0; i < 6; ++i) {
            diagonal.at(i, i) = static_cast<float>((noise.at(0, i) + 3.0) * std::pow(0.3, static_cast<double>(i)));
        }
        run.step(diagonal);
        if (t == 1) continue;
        adamw_step(bench.stream(), {.beta1 = 0.95, .beta2 = 0.95},
                   {.weight = weight,
                    .gradient = bench.upload(diagonal),
                    .exp_avg = exp_avg,
                    .exp_avg_sq = exp_avg_sq,
                    .learning_rate = run.learning_rate,
                    .weight_decay = run.weight_decay,
                    .step = t - 1});
        CHECK(error_of(run.weight(), convert<double>(bench.download(weight))) < 1e-6);
    }
}

TEST_CASE("Zero and rank-one gradients, single rows and columns pass SOAP", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const NamedDevice tested = GENERATE(from_range(cpu_and_emulated_cuda()));
    INFO("on " << tested.name);
    Bench bench = Bench::on(tested.make());
    for (const bool skip : {true, false}) {
        const auto soap =
            make_soap({.epsilon = skip ? 1e-8 : 0.01, .skip_first_step = skip, .precondition_frequency = 2});
        OptimizerRun zero(bench, *soap, kSoapWeight);
        for (int t = 0; t < 4; ++t) zero.step(Matrix(12, 11));
        Exact decayed = scaled(convert<double>(kSoapWeight), std::pow(1.0 - 0.05 * 0.1, skip ? 3.0 : 4.0));
        CHECK(error_of(zero.weight(), decayed) < 1e-6);
        CHECK(zero.failures() == 0);
        for (const auto& [rows, columns] :
             std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {1, 7}, {7, 1}, {12, 20}, {20, 12}}) {
            INFO(rows << " x " << columns << ", first step skipped " << skip);
            CHECK(descends(bench, *soap, outer_products(rows, columns, HUGE_VAL, 1), 6));
        }
    }
}

TEST_CASE("SOAP points along ill-conditioned gradients, and along one of rank one over many refreshes", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const NamedDevice tested = GENERATE(from_range(cpu_and_emulated_cuda()));
    INFO("on " << tested.name);
    Bench bench = Bench::on(tested.make());
    for (const double condition : {1e2, 1e4, 1e6, 1e8, 1e10, HUGE_VAL}) {
        for (const auto& [rows, columns] :
             std::vector<std::pair<std::int64_t, std::int64_t>>{{12, 20}, {20, 12}, {16, 16}}) {
            const auto soap = make_soap({.precondition_frequency = 2});
            INFO(rows << " x " << columns << ", condition " << condition);
            CHECK(descends(bench, *soap, outer_products(rows, columns, condition, 300), 24));
        }
    }
}

TEST_CASE("Without a side SOAP is Adam that leaves out its first gradient", "[optim]") {
    Bench bench;
    const auto soap = make_soap(
        {.epsilon_mode = BiasEpsilon::corrected, .decay_order = DecayOrder::before, .max_preconditioner_dim = 4});
    OptimizerRun run(bench, *soap, kSoapWeight);
    CHECK(run.specs().size() == 2);
    const device::Tensor weight = bench.upload(kSoapWeight), exp_avg = bench.zeros(12, 11),
                         exp_avg_sq = bench.zeros(12, 11);
    for (std::int64_t t = 1; t <= 5; ++t) {
        run.step(soap_gradient(t));
        if (t == 1) continue;
        adamw_step(bench.stream(), {.beta1 = 0.95, .beta2 = 0.95},
                   {.weight = weight,
                    .gradient = bench.upload(soap_gradient(t)),
                    .exp_avg = exp_avg,
                    .exp_avg_sq = exp_avg_sq,
                    .learning_rate = run.learning_rate,
                    .weight_decay = run.weight_decay,
                    .step = t - 1});
    }
    CHECK(error_of(run.weight(), convert<double>(bench.download(weight))) < 1e-6);
}

TEST_CASE("A learning rate of 0 leaves the weight under SOAP while the states move", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    Bench bench;
    const auto soap = make_soap({.precondition_frequency = 2});
    OptimizerRun still(bench, *soap, kSoapWeight), moving(bench, *soap, kSoapWeight);
    still.learning_rate = 0.0;
    for (std::int64_t t = 1; t <= 6; ++t) {
        still.step(soap_gradient(t));
        moving.step(soap_gradient(t));
    }
    CHECK(same_bits(still.weight(), kSoapWeight));
    CHECK_FALSE(same_bits(moving.weight(), kSoapWeight));
    CHECK(still.state_bytes() == moving.state_bytes());
}

TEST_CASE("SOAP declares its states", "[optim]") {
    const auto names = [](const std::vector<StateSpec>& states) {
        std::string result;
        for (const StateSpec& state : states) {
            CHECK_FALSE(state.element);
            result += state_key("", state) + " ";
        }
        return result;
    };
    CHECK(names(make_soap({})->states(6, 4)) ==
          "/exp_avg /exp_avg_sq /left_factor /right_factor /left_basis /right_basis /refresh_failures ");
    CHECK(names(make_soap({.one_sided = true})->states(6, 4)) ==
          "/exp_avg /exp_avg_sq /right_factor /right_basis /refresh_failures ");
    CHECK(names(make_soap({.one_sided = true})->states(5, 5)) ==
          "/exp_avg /exp_avg_sq /left_factor /left_basis /refresh_failures ");
    CHECK(names(make_soap({.max_preconditioner_dim = 3})->states(6, 4)) == "/exp_avg /exp_avg_sq ");
    std::int64_t bytes = 0;
    for (const StateSpec& state : make_soap({})->states(512, 512)) bytes += state.bytes();
    CHECK(bytes == 24 * 512 * 512 + 8);
}

TEST_CASE("SOAP's cost is that of the operations it issues, in steps with and without a refresh", "[optim]") {
    for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{384, 128}, {256, 256}}) {
        const auto soap = make_soap({.precondition_frequency = 5});
        const OptimizerCost cost = soap->cost(rows, columns);
        const CountedStep plain = count_step(*soap, rows, columns, 5), refresh = count_step(*soap, rows, columns, 6);
        CHECK(cost.at(5, 0).flops() == cost.step.flops());
        CHECK(cost.at(6, 0).flops() == cost.worst().flops());
        const auto share = [](std::int64_t counted, std::int64_t stated) {
            return static_cast<double>(counted) / static_cast<double>(stated);
        };
        CHECK(share(plain.cost.flops, cost.step.flops()) == Approx(1.0).epsilon(0.1));
        CHECK(share(refresh.cost.flops, cost.worst().flops()) == Approx(1.0).epsilon(0.1));
        // What products read and write beside the factors is hidden behind their FLOPs.
        const std::int64_t of_products = 4 * (10 * rows * columns + 2 * (rows * rows + columns * columns));
        CHECK(share(plain.cost.bytes - of_products, cost.step.element_bytes) == Approx(1.0).epsilon(0.02));
    }
    const OptimizerCost square = make_soap({})->cost(4096, 4096);
    CHECK(static_cast<double>(square.step.flops()) / 1e9 == Approx(10 * 68.72).epsilon(1e-3));
    CHECK(static_cast<double>(square.refresh.orthogonal_flops) / 1e9 == Approx(16.0 / 3.0 * 68.72).epsilon(1e-3));
}

TEST_CASE("SOAP takes the workspace that its rehearsal says, in every step", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const std::vector<model::RowBlock> blocks{{"q", 0, 12}, {"k", 12, 4}};
    const auto soap = make_soap({.precondition_frequency = 3, .stagger_refresh = true});
    const std::vector<std::int64_t> numbers{0, 1};
    std::int64_t rehearsed = 0;
    for (const auto& [step, share] : soap->rehearsal_steps(numbers)) {
        rehearsed = std::max(rehearsed, count_step(*soap, 16, 10, step, blocks).workspace);
    }
    Bench bench({}, rehearsed);  // a pool with a byte less could not serve
    OptimizerRun run(bench, *soap, convert<float>(gaussian(16, 10, 1)), blocks);
    for (std::uint64_t t = 0; t < 9; ++t) run.step(convert<float>(gaussian(16, 10, 120 + t)));
    CHECK(bench.workspace().high_water() == rehearsed);
    CHECK(bench.workspace().in_use() == 0);
}

TEST_CASE("A SOAP step has the same bits for every number of threads, on asynchronous streams and guarded", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const Matrix initial = convert<float>(gaussian(90, 61, 70));
    Matrix want;
    for (const device::CpuDeviceOptions& options : device_variants()) {
        Bench bench(options);
        const auto soap = make_soap({.precondition_frequency = 2});
        OptimizerRun run(bench, *soap, initial, {{"q", 0, 61}, {"k", 61, 9}, {"v", 70, 20}});
        for (std::uint64_t k = 0; k < 5; ++k) run.step(convert<float>(gaussian(90, 61, 80 + k)), {.clip = 0.9F});
        const Matrix got = run.weight();
        if (want.values.empty()) want = got;
        INFO(options.threads << " threads, asynchronous " << options.asynchronous_streams);
        CHECK(same_bits(got, want));
    }
}
