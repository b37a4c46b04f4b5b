// The bases of SOAP: what they are, how they are renewed, and what follows them.

#include "mfsdp/optim/adamw.h"
#include "mfsdp/optim/soap.h"

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

TEST_CASE("When eigenvalues cross, both moments go with their directions", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    // Diagonal gradients: the basis is a permutation, and Adam does not care for permutations.
    const NamedDevice tested = GENERATE(from_range(cpu_and_emulated_cuda()));
    INFO("on " << tested.name);
    Bench bench = Bench::on(tested.make());
    const auto soap = make_soap({.shampoo_beta = 0.3,
                                 .epsilon_mode = BiasEpsilon::corrected,
                                 .decay_order = DecayOrder::before,
                                 .precondition_frequency = 1});
    OptimizerRun run(bench, *soap, Matrix(2, 2));
    run.weight_decay = 0.0;
    const device::Tensor weight = bench.zeros(2, 2), exp_avg = bench.zeros(2, 2), exp_avg_sq = bench.zeros(2, 2);
    int crossings = 0;
    for (std::int64_t t = 1; t <= 8; ++t) {
        Matrix diagonal(2, 2);
        diagonal.at(0, 0) = t % 4 < 2 ? 10.0F : 0.5F;
        diagonal.at(1, 1) = t % 4 < 2 ? 1.0F : 7.0F;
        const Matrix before = run.state("left_basis");
        run.step(diagonal);
        if (t == 1) continue;
        crossings += (std::abs(before.at(0, 0)) > 0.5F) != (std::abs(run.state("left_basis").at(0, 0)) > 0.5F) ? 1 : 0;
        adamw_step(bench.stream(), {.beta1 = 0.95, .beta2 = 0.95},
                   {.weight = weight,
                    .gradient = bench.upload(diagonal),
                    .exp_avg = exp_avg,
                    .exp_avg_sq = exp_avg_sq,
                    .learning_rate = run.learning_rate,
                    .step = t - 1});
        CHECK(error_of(run.weight(), convert<double>(bench.download(weight))) < 2e-6);
    }
    CHECK(crossings >= 2);
}

TEST_CASE("Signs of the basis, turned at any time together with the moment, change no weight", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    Bench bench;
    const auto soap = make_soap({.precondition_frequency = 2});
    OptimizerRun plain(bench, *soap, kSoapWeight), turned(bench, *soap, kSoapWeight);
    for (std::int64_t t = 1; t <= 8; ++t) {
        plain.step(soap_gradient(t));
        turned.step(soap_gradient(t));
        Matrix basis = turned.state("left_basis"), moment = turned.state("exp_avg");
        for (std::int64_t j = 0; j < basis.columns; ++j) {
            if ((j + t) % 3 != 0) continue;
            for (std::int64_t i = 0; i < basis.rows; ++i) basis.at(i, j) *= -1.0F;
            for (std::int64_t c = 0; c < moment.columns; ++c) moment.at(j, c) *= -1.0F;
        }
        turned.set_state("left_basis", basis);
        turned.set_state("exp_avg", moment);
        CHECK(error_of(turned.weight(), convert<double>(plain.weight())) < 2e-5);
    }
}

TEST_CASE("SOAP's first call fills the factors and moves nothing", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    Bench bench;
    const auto soap = make_soap({});
    OptimizerRun run(bench, *soap, kSoapWeight);
    run.step(soap_gradient(1));
    CHECK(same_bits(run.weight(), kSoapWeight));
    CHECK(same_bits(run.state("exp_avg"), Matrix(12, 11)));
    CHECK(same_bits(run.state("exp_avg_sq"), Matrix(12, 11)));
    const Exact g = convert<double>(soap_gradient(1));
    CHECK(error_of(run.state("left_factor"), scaled(product(g, transposed(g)), 0.05)) < 1e-6);
    // The basis diagonalises the factor, largest eigenvalue first.
    const Exact basis = convert<double>(run.state("right_basis")), factor = convert<double>(run.state("right_factor"));
    const Exact diagonal = product(product(transposed(basis), factor), basis);
    for (std::int64_t i = 0; i + 1 < 11; ++i) CHECK(diagonal.at(i, i) >= diagonal.at(i + 1, i + 1) - 1e-6);
    Exact only(11, 11);
    for (std::int64_t i = 0; i < 11; ++i) only.at(i, i) = diagonal.at(i, i);
    CHECK(error_of(convert<float>(diagonal), only) < 1e-5);
}

TEST_CASE("A failed basis keeps itself and both moments to the bit, and is counted", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const auto soap = make_soap({.precondition_frequency = 2});
    Bench good, bad({.solver_fault = device::SolverFault::all});
    OptimizerRun healthy(good, *soap, kSoapWeight), failing(bad, *soap, kSoapWeight);
    for (std::int64_t t = 1; t <= 4; ++t) healthy.step(soap_gradient(t));
    failing.take_over(healthy);
    const Matrix left = failing.state("left_basis"), right = failing.state("right_basis");
    // Step 5 is update 4 and refreshes. What it does to the moments apart from that a run without refreshes shows.
    const auto never = make_soap({.precondition_frequency = 1000});
    OptimizerRun resting(good, *never, kSoapWeight);
    resting.take_over(healthy);
    failing.step(soap_gradient(5));
    resting.step(soap_gradient(5));
    CHECK(failing.failures() == 1);
    CHECK(same_bits(failing.state("left_basis"), left));
    CHECK(same_bits(failing.state("right_basis"), right));
    CHECK(same_bits(failing.state("exp_avg"), resting.state("exp_avg")));
    CHECK(same_bits(failing.state("exp_avg_sq"), resting.state("exp_avg_sq")));
    CHECK(same_bits(failing.weight(), resting.weight()));
    failing.step(soap_gradient(6));
    failing.step(soap_gradient(7));
    CHECK(failing.failures() == 2);
    healthy.take_over(failing);
    healthy.step(soap_gradient(8));
    healthy.step(soap_gradient(9));
    CHECK(healthy.failures() == 0);

    OptimizerRun from_the_start(bad, *soap, kSoapWeight);
    from_the_start.step(soap_gradient(1));
    CHECK(from_the_start.failures() == 1);
    CHECK(same_bits(from_the_start.state("left_basis"), convert<float>(identity(12))));
    from_the_start.step(soap_gradient(2));
    CHECK(all_finite(from_the_start.weight()));
}

TEST_CASE("Staggered refreshes of SOAP come by turns of the matrix number", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    constexpr std::int64_t kFrequency = 4;
    for (const bool stagger : {false, true}) {
        const auto soap = make_soap({.precondition_frequency = kFrequency, .stagger_refresh = stagger});
        for (std::int64_t number = 0; number < 5; ++number) {
            Bench bench;
            OptimizerRun run(bench, *soap, kSoapWeight);
            run.number = number;
            Matrix before = run.state("left_basis");
            for (std::int64_t t = 1; t <= 11; ++t) {
                run.step(soap_gradient(t));
                const Matrix after = run.state("left_basis");
                const bool due = t == 1 || (t - 1 + (stagger ? number : 0)) % kFrequency == 0;
                INFO("number " << number << ", step " << t << ", staggered " << stagger);
                CHECK(same_bits(before, after) != due);
                before = after;
            }
        }
    }
}
