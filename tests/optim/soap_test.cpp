#include "mfsdp/optim/soap.h"

#include "mfsdp/optim/adamw.h"

#include "device/jacobi.h"
#include "optim/optimizer_run.h"
#include "support/catch.h"
#include "support/cuda_devices.h"
#include "support/lapack.h"

#include <cmath>
#include <numeric>

using namespace mfsdp;
using namespace mfsdp::optim;
using namespace mfsdp::optim::test;
using mfsdp::test::cpu_and_emulated_cuda;
using mfsdp::test::NamedDevice;

namespace {

Exact identity(std::int64_t n) {
    Exact result(n, n);
    for (std::int64_t i = 0; i < n; ++i) result.at(i, i) = 1.0;
    return result;
}

/// Eigenvectors as columns, largest eigenvalue first; the identity for a zero matrix.
Exact eigenbasis(const Exact& factor) {
    const bool zero = std::all_of(factor.values.begin(), factor.values.end(), [](double x) { return x == 0.0; });
    if (zero) return identity(factor.rows);
    Exact result(factor.rows, factor.rows);
    result.values = device::reference::jacobi(factor.values, static_cast<std::size_t>(factor.rows)).vectors;
    return result;
}

/// One side of a matrix: its factor, its basis, and what a refresh does to both moments.
struct ReferenceSide {
    Exact factor, basis;
    std::vector<std::int64_t> order;

    explicit ReferenceSide(std::int64_t n) : factor(n, n), basis(identity(n)) {}

    void take_in(const Exact& outer, double beta) {
        for (std::size_t i = 0; i < factor.values.size(); ++i) {
            factor.values[i] = beta * factor.values[i] + (1.0 - beta) * outer.values[i];
        }
    }

    /// The new basis: Gram-Schmidt, twice, on the columns of A Q in falling order of their energy.
    void renew() {
        const std::int64_t n = factor.rows;
        const Exact t = product(factor, basis);
        std::vector<double> energy(static_cast<std::size_t>(n), 0.0);
        for (std::int64_t j = 0; j < n; ++j) {
            for (std::int64_t i = 0; i < n; ++i) energy[static_cast<std::size_t>(j)] += basis.at(i, j) * t.at(i, j);
        }
        order.resize(static_cast<std::size_t>(n));
        std::iota(order.begin(), order.end(), std::int64_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
            return energy[static_cast<std::size_t>(a)] > energy[static_cast<std::size_t>(b)];
        });
        Exact q(n, n);
        for (std::int64_t j = 0; j < n; ++j) {
            std::vector<double> column(static_cast<std::size_t>(n));
            for (std::int64_t i = 0; i < n; ++i) {
                column[static_cast<std::size_t>(i)] = t.at(i, order[static_cast<std::size_t>(j)]);
            }
            for (int pass = 0; pass < 2; ++pass) {
                for (std::int64_t k = 0; k < j; ++k) {
                    double along = 0.0;
                    for (std::int64_t i = 0; i < n; ++i) along += q.at(i, k) * column[static_cast<std::size_t>(i)];
                    for (std::int64_t i = 0; i < n; ++i) column[static_cast<std::size_t>(i)] -= along * q.at(i, k);
                }
            }
            const double size = std::sqrt(std::inner_product(column.begin(), column.end(), column.begin(), 0.0));
            for (std::int64_t i = 0; i < n; ++i) q.at(i, j) = column[static_cast<std::size_t>(i)] / size;
        }
        basis = q;
    }
};

/// SOAP of docs/optimizers.md for one block, as a loop in double.
struct Reference {
    SoapOptions options;
    std::int64_t number = 0;
    bool has_left, has_right;
    ReferenceSide left, right;
    Exact momentum, square;  // in the eigenbasis

    Reference(const SoapOptions& o, std::int64_t rows, std::int64_t columns)
        : options(o),
          has_left((!o.one_sided || rows <= columns) && rows <= o.max_preconditioner_dim),
          has_right((!o.one_sided || columns < rows) && columns <= o.max_preconditioner_dim),
          left(rows),
          right(columns),
          momentum(rows, columns),
          square(rows, columns) {}

    [[nodiscard]] Exact into(const Exact& x) const { return product(product(transposed(left.basis), x), right.basis); }
    [[nodiscard]] Exact out_of(const Exact& x) const {
        return product(product(left.basis, x), transposed(right.basis));
    }
    void take_in(const Exact& g) {
        const double beta = options.shampoo_beta.value_or(options.beta2);
        if (has_left) left.take_in(product(g, transposed(g)), beta);
        if (has_right) right.take_in(product(transposed(g), g), beta);
    }

    void step(std::int64_t step, const Exact& g, double lr, double wd, Exact& weight) {
        const std::int64_t t = options.skip_first_step ? step - 1 : step;
        if (step == 1) {
            take_in(g);
            if (has_left) left.basis = eigenbasis(left.factor);
            if (has_right) right.basis = eigenbasis(right.factor);
            if (options.skip_first_step) return;
        }
        const Exact rotated = into(g);
        Exact u = rotated;
        const double c1 = options.bias_correction ? 1.0 - std::pow(options.beta1, static_cast<double>(t)) : 1.0;
        const double c2 = options.bias_correction ? 1.0 - std::pow(options.beta2, static_cast<double>(t)) : 1.0;
        const bool corrected = options.epsilon_mode == BiasEpsilon::corrected;
        for (std::size_t i = 0; i < u.values.size(); ++i) {
            double& m = momentum.values[i];
            double& v = square.values[i];
            m = options.beta1 * m + (1.0 - options.beta1) * rotated.values[i];
            v = options.beta2 * v + (1.0 - options.beta2) * rotated.values[i] * rotated.values[i];
            u.values[i] =
                corrected ? m / c1 / (std::sqrt(v / c2) + options.epsilon) : m / (std::sqrt(v) + options.epsilon);
        }
        u = out_of(u);
        if (options.normalize_update) {
            const double rms = std::sqrt(inner(u, u) / static_cast<double>(u.values.size()));
            if (rms > 0.0) u = scaled(u, 1.0 / rms);
        }
        const double rate = corrected ? lr : lr * std::sqrt(c2) / c1;
        const bool before = options.decay_order == DecayOrder::before;
        for (std::size_t i = 0; i < weight.values.size(); ++i) {
            double& w = weight.values[i];
            if (before) w *= 1.0 - lr * wd;
            w -= rate * u.values[i];
            if (!before) w -= lr * wd * w;
        }
        if (step == 1) return;
        take_in(g);
        const std::int64_t shift = options.stagger_refresh ? number : 0;
        if ((t + shift) % options.precondition_frequency != 0) return;
        const Exact in_parameter_basis = out_of(momentum);
        const Exact before_order = square;
        if (has_left) left.renew();
        if (has_right) right.renew();
        for (std::int64_t i = 0; i < square.rows; ++i) {
            for (std::int64_t j = 0; j < square.columns; ++j) {
                square.at(i, j) = before_order.at(has_left ? left.order[static_cast<std::size_t>(i)] : i,
                                                  has_right ? right.order[static_cast<std::size_t>(j)] : j);
            }
        }
        momentum = into(in_parameter_basis);
    }
};

const Matrix kWeight = convert<float>(gaussian(12, 11, 20));

Matrix gradient(std::int64_t t) { return convert<float>(gaussian(12, 11, 40 + static_cast<std::uint64_t>(t))); }

}  // namespace

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
        OptimizerRun run(bench, *soap, kWeight);
        run.number = 5;
        Reference reference(all[k], 12, 11);
        reference.number = run.number;
        Exact weight = convert<double>(kWeight);
        for (std::int64_t t = 1; t <= 9; ++t) {
            run.step(gradient(t));
            reference.step(t, convert<double>(gradient(t)), run.learning_rate, run.weight_decay, weight);
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
    OptimizerRun plain(bench, *soap, kWeight), turned(bench, *soap, kWeight);
    for (std::int64_t t = 1; t <= 8; ++t) {
        plain.step(gradient(t));
        turned.step(gradient(t));
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
    OptimizerRun run(bench, *soap, kWeight);
    run.step(gradient(1));
    CHECK(same_bits(run.weight(), kWeight));
    CHECK(same_bits(run.state("exp_avg"), Matrix(12, 11)));
    CHECK(same_bits(run.state("exp_avg_sq"), Matrix(12, 11)));
    const Exact g = convert<double>(gradient(1));
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
    OptimizerRun healthy(good, *soap, kWeight), failing(bad, *soap, kWeight);
    for (std::int64_t t = 1; t <= 4; ++t) healthy.step(gradient(t));
    failing.take_over(healthy);
    const Matrix left = failing.state("left_basis"), right = failing.state("right_basis");
    // Step 5 is update 4 and refreshes. What it does to the moments apart from that a run without refreshes shows.
    const auto never = make_soap({.precondition_frequency = 1000});
    OptimizerRun resting(good, *never, kWeight);
    resting.take_over(healthy);
    failing.step(gradient(5));
    resting.step(gradient(5));
    CHECK(failing.failures() == 1);
    CHECK(same_bits(failing.state("left_basis"), left));
    CHECK(same_bits(failing.state("right_basis"), right));
    CHECK(same_bits(failing.state("exp_avg"), resting.state("exp_avg")));
    CHECK(same_bits(failing.state("exp_avg_sq"), resting.state("exp_avg_sq")));
    CHECK(same_bits(failing.weight(), resting.weight()));
    failing.step(gradient(6));
    failing.step(gradient(7));
    CHECK(failing.failures() == 2);
    healthy.take_over(failing);
    healthy.step(gradient(8));
    healthy.step(gradient(9));
    CHECK(healthy.failures() == 0);

    OptimizerRun from_the_start(bad, *soap, kWeight);
    from_the_start.step(gradient(1));
    CHECK(from_the_start.failures() == 1);
    CHECK(same_bits(from_the_start.state("left_basis"), convert<float>(identity(12))));
    from_the_start.step(gradient(2));
    CHECK(all_finite(from_the_start.weight()));
}

TEST_CASE("Zero and rank-one gradients, single rows and columns pass SOAP", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const NamedDevice tested = GENERATE(from_range(cpu_and_emulated_cuda()));
    INFO("on " << tested.name);
    Bench bench = Bench::on(tested.make());
    for (const bool skip : {true, false}) {
        const auto soap =
            make_soap({.epsilon = skip ? 1e-8 : 0.01, .skip_first_step = skip, .precondition_frequency = 2});
        OptimizerRun zero(bench, *soap, kWeight);
        for (int t = 0; t < 4; ++t) zero.step(Matrix(12, 11));
        Exact decayed = scaled(convert<double>(kWeight), std::pow(1.0 - 0.05 * 0.1, skip ? 3.0 : 4.0));
        CHECK(error_of(zero.weight(), decayed) < 1e-6);
        CHECK(zero.failures() == 0);
        for (const auto& [rows, columns] :
             std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {1, 7}, {7, 1}, {12, 20}, {20, 12}}) {
            const Exact outer = product(gaussian(rows, 1, 1), gaussian(1, columns, 2));
            OptimizerRun run(bench, *soap, Matrix(rows, columns));
            run.weight_decay = 0.0;
            for (int t = 0; t < 6; ++t) run.step(convert<float>(outer));
            INFO(rows << " x " << columns << ", first step skipped " << skip);
            CHECK(all_finite(run.weight()));
            CHECK(inner(convert<double>(run.weight()), outer) < 0.0);
            CHECK(run.failures() == 0);
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
            // Sums of outer products whose sizes fall; condition infinity leaves the first alone.
            const std::int64_t rank = std::isinf(condition) ? 1 : std::min(rows, columns);
            Exact gradient(rows, columns);
            for (std::int64_t k = 0; k < rank; ++k) {
                const double size =
                    rank == 1 ? 1.0 : std::pow(condition, -static_cast<double>(k) / static_cast<double>(rank - 1));
                const auto seed = static_cast<std::uint64_t>(300 + k);
                const Exact outer = product(gaussian(rows, 1, seed), gaussian(1, columns, seed + 50));
                for (std::size_t i = 0; i < outer.values.size(); ++i) gradient.values[i] += size * outer.values[i];
            }
            const auto soap = make_soap({.precondition_frequency = 2});
            OptimizerRun run(bench, *soap, Matrix(rows, columns));
            run.weight_decay = 0.0;
            for (int t = 0; t < 24; ++t) run.step(convert<float>(gradient));
            INFO(rows << " x " << columns << ", condition " << condition);
            CHECK(all_finite(run.weight()));
            CHECK(inner(convert<double>(run.weight()), gradient) < 0.0);
            CHECK(run.failures() == 0);
        }
    }
}

TEST_CASE("Without a side SOAP is Adam that leaves out its first gradient", "[optim]") {
    Bench bench;
    const auto soap = make_soap(
        {.epsilon_mode = BiasEpsilon::corrected, .decay_order = DecayOrder::before, .max_preconditioner_dim = 4});
    OptimizerRun run(bench, *soap, kWeight);
    CHECK(run.specs().size() == 2);
    const device::Tensor weight = bench.upload(kWeight), exp_avg = bench.zeros(12, 11),
                         exp_avg_sq = bench.zeros(12, 11);
    for (std::int64_t t = 1; t <= 5; ++t) {
        run.step(gradient(t));
        if (t == 1) continue;
        adamw_step(bench.stream(), {.beta1 = 0.95, .beta2 = 0.95},
                   {.weight = weight,
                    .gradient = bench.upload(gradient(t)),
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
    OptimizerRun still(bench, *soap, kWeight), moving(bench, *soap, kWeight);
    still.learning_rate = 0.0;
    for (std::int64_t t = 1; t <= 6; ++t) {
        still.step(gradient(t));
        moving.step(gradient(t));
    }
    CHECK(same_bits(still.weight(), kWeight));
    CHECK_FALSE(same_bits(moving.weight(), kWeight));
    CHECK(still.state_bytes() == moving.state_bytes());
}

TEST_CASE("Staggered refreshes of SOAP come by turns of the matrix number", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    constexpr std::int64_t kFrequency = 4;
    for (const bool stagger : {false, true}) {
        const auto soap = make_soap({.precondition_frequency = kFrequency, .stagger_refresh = stagger});
        for (std::int64_t number = 0; number < 5; ++number) {
            Bench bench;
            OptimizerRun run(bench, *soap, kWeight);
            run.number = number;
            Matrix before = run.state("left_basis");
            for (std::int64_t t = 1; t <= 11; ++t) {
                run.step(gradient(t));
                const Matrix after = run.state("left_basis");
                const bool due = t == 1 || (t - 1 + (stagger ? number : 0)) % kFrequency == 0;
                INFO("number " << number << ", step " << t << ", staggered " << stagger);
                CHECK(same_bits(before, after) != due);
                before = after;
            }
        }
    }
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
