#include "mfsdp/optim/shampoo.h"

#include "device/jacobi.h"
#include "optim/optimizer_run.h"
#include "support/catch.h"
#include "support/cuda_devices.h"
#include "support/lapack.h"

#include <cmath>

using namespace mfsdp;
using namespace mfsdp::optim;
using namespace mfsdp::optim::test;
using mfsdp::test::cpu_and_emulated_cuda;
using mfsdp::test::NamedDevice;

namespace {

Exact power(const Exact& a, double exponent, double ridge) {
    const auto n = static_cast<std::size_t>(a.rows);
    const device::reference::SymmetricEigen eigen = device::reference::jacobi(a.values, n);
    Exact result(a.rows, a.rows);
    for (std::size_t k = 0; k < n; ++k) {
        const double f = std::pow(std::max(eigen.values[k], 0.0) + ridge * eigen.values.front(), exponent);
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j < n; ++j) {
                result.values[i * n + j] += f * eigen.vectors[i * n + k] * eigen.vectors[j * n + k];
            }
        }
    }
    return result;
}

double length(const Exact& a) { return std::sqrt(inner(a, a)); }

/// Shampoo of docs/optimizers.md for one block, as a loop in double.
struct Reference {
    ShampooOptions options;
    std::int64_t number = 0;
    Exact left, right, left_root, right_root, momentum, square;

    Reference(const ShampooOptions& o, std::int64_t rows, std::int64_t columns)
        : options(o),
          left(rows, rows),
          right(columns, columns),
          left_root(rows, rows),
          right_root(columns, columns),
          momentum(rows, columns),
          square(rows, columns) {
        for (std::int64_t i = 0; i < rows; ++i) left_root.at(i, i) = 1.0;
        for (std::int64_t i = 0; i < columns; ++i) right_root.at(i, i) = 1.0;
    }

    static void mix(Exact& target, double beta, const Exact& other, double factor) {
        for (std::size_t i = 0; i < target.values.size(); ++i) {
            target.values[i] = beta * target.values[i] + factor * other.values[i];
        }
    }

    void step(std::int64_t t, const Exact& g, double lr, double wd, Exact& weight) {
        const bool sums = options.beta2 == 1.0;
        const double gb2 = options.graft_beta2.value_or(options.beta2), time = static_cast<double>(t);
        const auto start = options.start_step > 0 ? options.start_step : options.precondition_frequency;
        mix(left, options.beta2, product(g, transposed(g)), sums ? 1.0 : 1.0 - options.beta2);
        mix(right, options.beta2, product(transposed(g), g), sums ? 1.0 : 1.0 - options.beta2);
        Exact squares = g;
        for (double& x : squares.values) x *= x;
        const bool adds = options.grafting == Grafting::adagrad;
        mix(square, adds ? 1.0 : gb2, squares, adds ? 1.0 : 1.0 - gb2);
        const std::int64_t shift = options.stagger_refresh ? number : 0;
        if (t == start || (t > start && (t + shift) % options.precondition_frequency == 0)) {
            const double bc2 = sums ? 1.0 : 1.0 - std::pow(options.beta2, time);
            const double exponent = -1.0 / static_cast<double>(options.root_order);
            left_root = power(scaled(left, 1.0 / bc2), exponent, options.epsilon);
            right_root = power(scaled(right, 1.0 / bc2), exponent, options.epsilon);
        }
        mix(momentum, options.beta1, g, 1.0 - options.beta1);
        const Exact average = scaled(momentum, 1.0 / (1.0 - std::pow(options.beta1, time)));
        Exact graft = average;
        if (options.grafting != Grafting::sgd && options.grafting != Grafting::none) {
            const double correction = options.grafting == Grafting::adam ? 1.0 - std::pow(gb2, time) : 1.0;
            for (std::size_t i = 0; i < graft.values.size(); ++i) {
                graft.values[i] /= std::sqrt(square.values[i] / correction) + options.grafting_epsilon;
            }
        }
        Exact direction = graft;
        if (t >= start) {
            direction = product(product(left_root, average), right_root);
            const double size = length(direction);
            if (options.grafting != Grafting::none && size > 0.0) {
                direction = scaled(direction, length(graft) / size);
            }
        }
        mix(weight, 1.0 - lr * wd, direction, -lr);
    }
};

Exact rows_of(const Exact& matrix, std::int64_t begin, std::int64_t count) {
    Exact result(count, matrix.columns);
    std::copy_n(matrix.values.begin() + begin * matrix.columns, count * matrix.columns, result.values.begin());
    return result;
}

const Matrix kWeight = convert<float>(gaussian(14, 9, 20));

}  // namespace

TEST_CASE("Shampoo follows a plain double loop for every graft, for sums and averages, whole and in row blocks",
          "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    Bench bench({.threads = 2});
    const std::vector<model::RowBlock> whole{{"all", 0, 14}};
    const std::vector<model::RowBlock> split{{"q", 0, 5}, {"k", 5, 1}, {"v", 6, 8}};
    for (const Grafting grafting :
         {Grafting::adam, Grafting::rmsprop, Grafting::adagrad, Grafting::sgd, Grafting::none}) {
        for (const double beta2 : {0.9, 1.0}) {
            for (const auto& blocks : {whole, split}) {
                const ShampooOptions options{.beta2 = beta2,
                                             .graft_beta2 = 0.95,
                                             .epsilon = 1e-3,
                                             .grafting = grafting,
                                             .start_step = 2,
                                             .precondition_frequency = 3,
                                             .stagger_refresh = true};
                const auto shampoo = make_shampoo(options);
                OptimizerRun run(bench, *shampoo, kWeight, blocks.size() > 1 ? blocks : std::vector<model::RowBlock>{});
                run.number = 4;
                std::vector<Reference> references;
                std::vector<Exact> weights;
                for (const model::RowBlock& block : blocks) {
                    references.emplace_back(options, block.row_count, 9);
                    references.back().number = run.number + std::ssize(references) - 1;
                    weights.push_back(rows_of(convert<double>(kWeight), block.row_begin, block.row_count));
                }
                for (std::int64_t t = 1; t <= 8; ++t) {
                    const Exact gradient = gaussian(14, 9, 30 + static_cast<std::uint64_t>(t));
                    run.step(convert<float>(gradient));
                    const Exact got = convert<double>(run.weight());
                    for (std::size_t b = 0; b < blocks.size(); ++b) {
                        const std::int64_t begin = blocks[b].row_begin, count = blocks[b].row_count;
                        references[b].step(t, rows_of(gradient, begin, count), run.learning_rate, run.weight_decay,
                                           weights[b]);
                        INFO("graft " << static_cast<int>(grafting) << ", beta2 " << beta2 << ", step " << t
                                      << ", block " << blocks[b].name);
                        CHECK(error_of(convert<float>(rows_of(got, begin, count)), weights[b]) < 5e-5);
                    }
                }
            }
        }
    }
}

TEST_CASE("One step of Shampoo without graft or ridge is the polar factor of the gradient, as in Muon", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const NamedDevice tested = GENERATE(from_range(cpu_and_emulated_cuda()));
    INFO("on " << tested.name);
    Bench bench = Bench::on(tested.make());
    const auto shampoo =
        make_shampoo({.epsilon = 1e-12, .grafting = Grafting::none, .start_step = 1, .precondition_frequency = 1});
    const Exact gradient = gaussian(8, 8, 3);
    OptimizerRun run(bench, *shampoo, Matrix(8, 8));
    run.learning_rate = 1.0;
    run.step(convert<float>(gradient));
    const Exact polar = product(power(product(gradient, transposed(gradient)), -0.5, 0.0), gradient);
    CHECK(error_of(run.weight(), scaled(polar, -1.0)) < 2e-4);
}

TEST_CASE("Gradients of any size give Shampoo the same direction", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const NamedDevice tested = GENERATE(from_range(cpu_and_emulated_cuda()));
    INFO("on " << tested.name);
    Bench bench = Bench::on(tested.make());
    const auto shampoo = make_shampoo({.grafting = Grafting::none, .start_step = 1, .precondition_frequency = 1});
    const auto weight_after = [&](double factor) {
        OptimizerRun run(bench, *shampoo, Matrix(10, 6));
        for (std::uint64_t t = 0; t < 3; ++t) run.step(convert<float>(scaled(gaussian(10, 6, 50 + t), factor)));
        return run.weight();
    };
    const Exact plain = convert<double>(weight_after(1.0));
    for (const double factor : {1e-15, 1e-6, 0x1p-8, 3.0, 1e6, 1e15}) {
        INFO("factor " << factor);
        CHECK(error_of(weight_after(factor), plain) < 2e-5);
    }
}

TEST_CASE("Zero gradients leave Shampoo to the decay, its roots to the identity", "[optim]") {
    const NamedDevice tested = GENERATE(from_range(cpu_and_emulated_cuda()));
    INFO("on " << tested.name);
    Bench bench = Bench::on(tested.make());
    const auto shampoo = make_shampoo({.start_step = 1, .precondition_frequency = 1});
    OptimizerRun run(bench, *shampoo, kWeight);
    Matrix want = kWeight;
    for (int t = 0; t < 3; ++t) {
        run.step(Matrix(14, 9));
        want = scaled(want, static_cast<float>(1.0 - 0.05 * 0.1));
    }
    CHECK(same_bits(run.weight(), want));
    Matrix identity(9, 9);
    for (std::int64_t i = 0; i < 9; ++i) identity.at(i, i) = 1.0F;
    CHECK(same_bits(run.state("right_root"), identity));
    CHECK(run.failures() == 0);
}

TEST_CASE("Shampoo points along gradients of rank one, of condition up to 1e10, and of one row or column", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const NamedDevice tested = GENERATE(from_range(cpu_and_emulated_cuda()));
    INFO("on " << tested.name);
    Bench bench = Bench::on(tested.make());
    for (const auto& [rows, columns] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {1, 7}, {7, 1}, {12, 20}, {20, 12}, {16, 16}}) {
        for (const double condition : {1.0, 1e2, 1e4, 1e6, 1e8, 1e10, HUGE_VAL}) {
            const auto shampoo = make_shampoo({.start_step = 1, .precondition_frequency = 2});
            INFO(rows << " x " << columns << ", condition " << condition);
            CHECK(descends(bench, *shampoo, outer_products(rows, columns, condition, 100), 5));
        }
    }
}

TEST_CASE("A failed root stays the old one and is counted until a refresh succeeds", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const ShampooOptions options{.start_step = 1, .precondition_frequency = 2};
    const auto shampoo = make_shampoo(options);
    Bench good({.threads = 2}), bad({.threads = 2, .solver_fault = device::SolverFault::all});
    OptimizerRun healthy(good, *shampoo, kWeight), failing(bad, *shampoo, kWeight);
    for (std::uint64_t t = 0; t < 3; ++t) healthy.step(convert<float>(gaussian(14, 9, 60 + t)));
    const Matrix left = healthy.state("left_root"), right = healthy.state("right_root");
    CHECK(healthy.failures() == 0);
    failing.take_over(healthy);
    const std::vector<std::int64_t> want{1, 1, 2, 2, 3};  // refreshes at 4, 6 and 8
    for (std::uint64_t t = 0; t < want.size(); ++t) {
        failing.step(convert<float>(gaussian(14, 9, 70 + t)));
        INFO("step " << failing.steps);
        CHECK(failing.failures() == want[t]);
        CHECK(same_bits(failing.state("left_root"), left));
        CHECK(same_bits(failing.state("right_root"), right));
        CHECK(all_finite(failing.weight()));
    }
    healthy.take_over(failing);
    healthy.step(convert<float>(gaussian(14, 9, 80)));
    CHECK(healthy.failures() == 3);  // step 9 has no refresh
    healthy.step(convert<float>(gaussian(14, 9, 81)));
    CHECK(healthy.failures() == 0);
    CHECK_FALSE(same_bits(healthy.state("left_root"), left));
}

TEST_CASE("A factor that is not finite keeps the root and raises an alarm", "[optim]") {
    Bench bench;
    const auto shampoo = make_shampoo({.start_step = 1, .precondition_frequency = 1});
    OptimizerRun run(bench, *shampoo, kWeight);
    Matrix gradient(14, 9);
    gradient.at(0, 0) = 1e30F;  // finite, but not its square
    run.step(gradient);
    CHECK(run.failures() >= device::CountFailures::kNotFinite);
    CHECK(all_finite(run.weight()));
    CHECK(all_finite(run.state("left_root")));
}

TEST_CASE("Failures are counted for the block that they are in, though all are refreshed together", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    for (const std::int64_t bad_row : {0, 9}) {
        Bench bench;
        const auto shampoo = make_shampoo({.start_step = 1, .precondition_frequency = 1});
        OptimizerRun run(bench, *shampoo, kWeight, {{"q", 0, 7}, {"k", 7, 7}});
        Matrix gradient = convert<float>(gaussian(14, 9, 85));
        gradient.at(bad_row, 0) = 1e30F;
        run.step(gradient);
        CHECK((run.failures("q") >= device::CountFailures::kNotFinite) == (bad_row == 0));
        CHECK((run.failures("k") >= device::CountFailures::kNotFinite) == (bad_row == 9));
        CHECK(run.failures("q") + run.failures("k") == device::CountFailures::kNotFinite);
    }
}

TEST_CASE("Staggered refreshes of Shampoo come by turns of the matrix number after the start", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    constexpr std::int64_t kFrequency = 4, kStart = 3;
    for (const bool stagger : {false, true}) {
        const auto shampoo =
            make_shampoo({.start_step = kStart, .precondition_frequency = kFrequency, .stagger_refresh = stagger});
        for (std::int64_t number = 0; number < 6; ++number) {
            Bench bench;
            OptimizerRun run(bench, *shampoo, kWeight);
            run.number = number;
            Matrix before = run.state("left_root");
            for (std::int64_t t = 1; t <= 12; ++t) {
                run.step(convert<float>(gaussian(14, 9, 90 + static_cast<std::uint64_t>(t))));
                const Matrix after = run.state("left_root");
                const bool due = t == kStart || (t > kStart && (t + (stagger ? number : 0)) % kFrequency == 0);
                INFO("number " << number << ", step " << t << ", staggered " << stagger);
                CHECK(same_bits(before, after) != due);
                before = after;
            }
        }
    }
}

TEST_CASE("A learning rate of 0 leaves the weight, and the states follow their recurrence", "[optim]") {
    Bench bench;
    const auto shampoo = make_shampoo({.beta1 = 0.8, .beta2 = 0.7, .start_step = 100});
    OptimizerRun run(bench, *shampoo, kWeight);
    run.learning_rate = 0.0;
    Exact momentum(14, 9), square(14, 9), left(14, 14);
    for (std::uint64_t t = 0; t < 4; ++t) {
        const Exact g = gaussian(14, 9, 110 + t);
        run.step(convert<float>(g));
        for (std::size_t i = 0; i < g.values.size(); ++i) {
            momentum.values[i] = 0.8 * momentum.values[i] + 0.2 * g.values[i];
            square.values[i] = 0.7 * square.values[i] + 0.3 * g.values[i] * g.values[i];
        }
        Reference::mix(left, 0.7, product(g, transposed(g)), 0.3);
        CHECK(same_bits(run.weight(), kWeight));
        CHECK(error_of(run.state("momentum"), momentum) < 1e-6);
        CHECK(error_of(run.state("graft_exp_avg_sq"), square) < 1e-6);
        CHECK(error_of(run.state("left_factor"), left) < 2e-6);
    }
}

TEST_CASE("Shampoo declares its states, a long side has none", "[optim]") {
    const auto names = [](const std::vector<StateSpec>& states) {
        std::vector<std::string> result;
        for (const StateSpec& state : states) result.push_back(state_key("w", state));
        return result;
    };
    CHECK(names(make_shampoo({})->states(6, 4)) ==
          std::vector<std::string>{"w/momentum", "w/graft_exp_avg_sq", "w/left_factor", "w/right_factor", "w/left_root",
                                   "w/right_root", "w/refresh_failures"});
    CHECK(names(make_shampoo({.grafting = Grafting::sgd, .max_preconditioner_dim = 5})->states(6, 4)) ==
          std::vector<std::string>{"w/momentum", "w/right_factor", "w/right_root", "w/refresh_failures"});
    CHECK(names(make_shampoo({.max_preconditioner_dim = 3})->states(6, 4)) ==
          std::vector<std::string>{"w/momentum", "w/graft_exp_avg_sq"});
    const std::vector<model::RowBlock> blocks{{"q", 0, 4}, {"k", 4, 2}};
    const auto fused = make_shampoo({.grafting = Grafting::none})->states(6, 4, blocks);
    CHECK(names(fused) == std::vector<std::string>{"w/momentum", "w[q]/left_factor", "w[q]/right_factor",
                                                   "w[q]/left_root", "w[q]/right_root", "w[q]/refresh_failures",
                                                   "w[k]/left_factor", "w[k]/right_factor", "w[k]/left_root",
                                                   "w[k]/right_root", "w[k]/refresh_failures"});
    CHECK(fused[0].shape == std::vector<std::int64_t>{6, 4});
    CHECK(fused[6].shape == std::vector<std::int64_t>{2, 2});
    std::int64_t bytes = 0;
    for (const StateSpec& state : make_shampoo({})->states(512, 512)) bytes += state.bytes();
    CHECK(bytes == 24 * 512 * 512 + 8);
}

TEST_CASE("Shampoo's cost is that of the operations it issues, in steps with and without a refresh", "[optim]") {
    for (const RootMethod method : {RootMethod::eigen, RootMethod::coupled_newton}) {
        for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{384, 128}, {256, 256}}) {
            const auto shampoo = make_shampoo({.root_method = method, .start_step = 1, .precondition_frequency = 5});
            const OptimizerCost cost = shampoo->cost(rows, columns);
            const CountedStep plain = count_step(*shampoo, rows, columns, 4);
            const CountedStep refresh = count_step(*shampoo, rows, columns, 5);
            const auto share = [](std::int64_t counted, std::int64_t stated) {
                return static_cast<double>(counted) / static_cast<double>(stated);
            };
            CHECK(share(plain.cost.flops, cost.step.flops()) == Approx(1.0).epsilon(0.1));
            CHECK(share(refresh.cost.flops, cost.worst().flops()) == Approx(1.0).epsilon(0.1));
            CHECK(share(plain.cost.bytes, cost.step.element_bytes) == Approx(1.0).epsilon(0.5));
            CHECK(cost.mean().flops() ==
                  cost.step.flops() + cost.refresh.product_flops / 5 + cost.refresh.eigen_flops / 5);
            CHECK(cost.at(4, 0).flops() == cost.step.flops());
            CHECK(cost.at(5, 0).flops() == cost.worst().flops());
        }
    }
    // docs/optimizers.md, cost, with kernels that compute one triangle; the root's acceptance is counted too.
    const OptimizerCost square = make_shampoo({})->cost(4096, 4096);
    CHECK(static_cast<double>(square.step.flops()) / 1e9 == Approx(6 * 68.72).epsilon(1e-3));
    CHECK(static_cast<double>(square.refresh.eigen_flops) / 1e9 == Approx(18 * 68.72).epsilon(1e-3));
    CHECK(make_shampoo({.stagger_refresh = true})->cost(8, 8).at(7, 3).eigen_flops > 0);
}

TEST_CASE("Shampoo takes the workspace that its rehearsal says, in every step", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const std::vector<model::RowBlock> blocks{{"q", 0, 12}, {"k", 12, 4}};
    for (const RootMethod method : {RootMethod::eigen, RootMethod::coupled_newton}) {
        const auto shampoo = make_shampoo(
            {.root_method = method, .start_step = 2, .precondition_frequency = 3, .stagger_refresh = true});
        const std::vector<std::int64_t> numbers{0, 1};
        std::int64_t rehearsed = 0;
        for (const auto& [step, share] : shampoo->rehearsal_steps(numbers)) {
            rehearsed = std::max(rehearsed, count_step(*shampoo, 16, 10, step, blocks).workspace);
        }
        Bench bench({}, rehearsed);  // a pool with a byte less could not serve
        OptimizerRun run(bench, *shampoo, convert<float>(gaussian(16, 10, 1)), blocks);
        for (std::uint64_t t = 0; t < 9; ++t) {
            run.step(convert<float>(gaussian(16, 10, 120 + t)));
            CHECK(bench.workspace().high_water() ==
                  std::max(t == 0 ? 0 : bench.workspace().high_water(),
                           count_step(*shampoo, 16, 10, run.steps, blocks).workspace));
        }
        CHECK(bench.workspace().high_water() == rehearsed);
        CHECK(bench.workspace().in_use() == 0);
    }
}

TEST_CASE("A Shampoo step has the same bits for every number of threads, on asynchronous streams and guarded",
          "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    const Matrix initial = convert<float>(gaussian(90, 61, 70));
    for (const RootMethod method : {RootMethod::eigen, RootMethod::coupled_newton}) {
        Matrix want;
        for (const device::CpuDeviceOptions& options : device_variants()) {
            Bench bench(options);
            const auto shampoo =
                make_shampoo({.epsilon = 1e-4, .root_method = method, .start_step = 1, .precondition_frequency = 2});
            OptimizerRun run(bench, *shampoo, initial, {{"q", 0, 61}, {"k", 61, 9}, {"v", 70, 20}});
            for (std::uint64_t k = 0; k < 3; ++k) run.step(convert<float>(gaussian(90, 61, 80 + k)), {.clip = 0.9F});
            const Matrix got = run.weight();
            if (want.values.empty()) want = got;
            INFO(options.threads << " threads, asynchronous " << options.asynchronous_streams);
            CHECK(same_bits(got, want));
        }
    }
}

TEST_CASE("Roots by the coupled Newton iteration give the weights of the solver", "[optim]") {
    if (mfsdp::test::without_lapack()) return;
    Bench bench({.threads = 2});
    const auto weight_after = [&](RootMethod method) {
        const auto shampoo =
            make_shampoo({.epsilon = 1e-4, .root_method = method, .start_step = 1, .precondition_frequency = 2});
        OptimizerRun run(bench, *shampoo, kWeight);
        for (std::uint64_t t = 0; t < 6; ++t) run.step(convert<float>(gaussian(14, 9, 130 + t)));
        CHECK(run.failures() == 0);
        return run.weight();
    };
    CHECK(error_of(weight_after(RootMethod::coupled_newton), convert<double>(weight_after(RootMethod::eigen))) < 1e-4);
}
