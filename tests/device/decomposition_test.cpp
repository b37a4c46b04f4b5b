// Accuracy of roots and bases, what becomes of a failed decomposition, and that neighbours and other threads change no
// bit. Expected values are computed in double from matrices whose eigenvalues are known.

#include "mfsdp/base/error.h"
#include "mfsdp/device/cpu_device.h"

#include "device/transfers.h"
#include "support/catch.h"
#include "support/lapack.h"

#include <cmath>
#include <numeric>
#include <thread>

using namespace mfsdp::device;
using test::Bench;
using test::random_values;
using test::same_bits;

namespace {

using Values = std::vector<double>;
using Size = std::size_t;

/// V diag(values) V^T with V a product of Householder reflections.
Values with_eigenvalues(const Values& values, std::uint64_t seed) {
    const Size n = values.size();
    Values a(n * n, 0.0);
    for (Size i = 0; i < n; ++i) a[i * n + i] = values[i];
    for (std::uint64_t k = 0; k < 3; ++k) {
        const std::vector<float> raw = random_values(static_cast<std::int64_t>(n), seed + k);
        Values v(raw.begin(), raw.end());
        const double length = std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
        for (double& x : v) x /= length;
        for (const bool rows : {true, false}) {
            for (Size j = 0; j < n; ++j) {
                double along = 0.0;
                for (Size i = 0; i < n; ++i) along += v[i] * (rows ? a[j * n + i] : a[i * n + j]);
                for (Size i = 0; i < n; ++i) (rows ? a[j * n + i] : a[i * n + j]) -= 2.0 * along * v[i];
            }
        }
    }
    return a;
}

/// n values from 1 down to 1 / condition, evenly on a logarithmic scale.
Values spread(Size n, double condition) {
    Values values(n);
    for (Size i = 0; i < n; ++i) {
        values[i] = std::pow(condition, -static_cast<double>(i) / static_cast<double>(n - 1));
    }
    return values;
}

Values product(const Values& a, const Values& b, Size n) {
    Values c(n * n, 0.0);
    for (Size i = 0; i < n; ++i) {
        for (Size k = 0; k < n; ++k) {
            for (Size j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
        }
    }
    return c;
}

/// Largest entry of X^p (A + e I) - I.
double residual(const Values& x, const Values& a, double e, int p, Size n) {
    Values result = a;
    for (Size i = 0; i < n; ++i) result[i * n + i] += e;
    for (int i = 0; i < p; ++i) result = product(x, result, n);
    double largest = 0.0;
    for (Size i = 0; i < n * n; ++i) {
        largest = std::max(largest, std::abs(result[i] - (i % (n + 1) == 0 ? 1.0 : 0.0)));
    }
    return largest;
}

std::vector<float> rounded(const Values& values) { return {values.begin(), values.end()}; }
Values widened(const std::vector<float>& values) { return {values.begin(), values.end()}; }

struct Outcome {
    std::vector<float> result;
    std::int64_t status = -1;
};

/// One factor's root, or its first basis.
Outcome root_of(Bench& bench, const std::vector<float>& factor, InverseRoots options, float before = 7.0F) {
    const auto n = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(factor.size()))));
    const Tensor root = bench.send(std::vector<float>(factor.size(), before)).reshape({n, n});
    const Tensor status = bench.reserve(DType::int64, 1);
    options.count = 1;
    options.workspace = bench.reserve(DType::float32, InverseRoots::task_floats(n));
    options.tasks[0] = {bench.send(factor).reshape({n, n}), root, status};
    launch(bench.stream(), options);
    return {bench.fetch(root), bench.fetch<std::int64_t>(status).front()};
}

constexpr auto kDone = static_cast<std::int64_t>(TaskStatus::done);
constexpr auto kFailed = static_cast<std::int64_t>(TaskStatus::failed);

}  // namespace

TEST_CASE("inverse roots are as exact as the condition of their matrix allows") {
    if (mfsdp::test::without_lapack()) return;
    // The smallest eigenvalue of size 1 / condition is known to some units of the last place of the largest one, 1: by
    // the solver in float64 ten times better, until its vectors are rounded.
    struct Case {
        double condition, in_float, in_double;
    };
    constexpr Size kSize = 64;
    for (const SolverFault fault : {SolverFault::none, SolverFault::single_precision}) {
        Bench bench(make_cpu_device({.threads = 2, .solver_fault = fault}));
        for (const Case& c : {Case{1e2, 2e-5, 2e-5}, Case{1e4, 1e-3, 2e-4}, Case{1e6, 0.1, 2e-2}}) {
            for (const int order : {2, 4, 8}) {
                const std::vector<float> factor = rounded(with_eigenvalues(spread(kSize, c.condition), 5));
                const Outcome outcome =
                    root_of(bench, factor, {.workspace = {}, .order = order, .epsilon = 1.0 / c.condition});
                INFO("condition " << c.condition << ", order " << order);
                CHECK(outcome.status == kDone);
                CHECK(residual(widened(outcome.result), widened(factor), 1.0 / c.condition, order, kSize) <
                      (fault == SolverFault::none ? c.in_float : c.in_double));
            }
        }
    }
}

TEST_CASE("the coupled Newton iteration agrees with the solver up to condition 1e4") {
    if (mfsdp::test::without_lapack()) return;
    constexpr std::int64_t kSize = 64;
    Bench bench(make_cpu_device({.threads = 2}));
    for (const double condition : {1e2, 1e4}) {
        for (const std::int64_t order : {2, 4, 8}) {
            const std::vector<float> factor = rounded(with_eigenvalues(spread(kSize, 1e8), 8));
            const Outcome wanted =
                root_of(bench, factor, {.workspace = {}, .order = order, .epsilon = 1.0 / condition});
            const Tensor root = bench.reserve(DType::float32, kSize * kSize).reshape({kSize, kSize});
            const Tensor status = bench.reserve(DType::int64, 1);
            launch(bench.stream(),
                   NewtonRoot{.factor = bench.send(factor).reshape({kSize, kSize}),
                              .root = root,
                              .status = status,
                              .workspace = bench.reserve(DType::float32, NewtonRoot::workspace_floats(kSize)),
                              .order = order,
                              .epsilon = 1.0 / condition});
            CHECK(bench.fetch<std::int64_t>(status).front() == kDone);
            const std::vector<float> got = bench.fetch(root);
            double difference = 0.0, largest = 0.0;
            for (Size i = 0; i < got.size(); ++i) {
                difference = std::max(difference, std::abs(static_cast<double>(got[i] - wanted.result[i])));
                largest = std::max(largest, std::abs(static_cast<double>(wanted.result[i])));
            }
            INFO("condition " << condition << ", order " << order);
            // An error d of an eigenvalue l changes l^(-1/p) by d / (p l) of itself.
            CHECK(difference < 8e-7 / static_cast<double>(order) * condition * largest);
        }
    }
}

TEST_CASE("a failed root stays the old one, a failed basis the identity, and both say so") {
    constexpr std::int64_t kSize = 12;
    Bench bench(make_cpu_device({.solver_fault = SolverFault::all}));
    const std::vector<float> factor = rounded(with_eigenvalues(spread(kSize, 10.0), 3));
    const Outcome root = root_of(bench, factor, {}, 0.5F);
    CHECK(root.status == kFailed);
    CHECK(root.result == std::vector<float>(kSize * kSize, 0.5F));

    const Tensor basis = bench.reserve(DType::float32, kSize * kSize).reshape({kSize, kSize});
    const Tensor status = bench.reserve(DType::int64, 1), order = bench.reserve(DType::int64, kSize);
    SymmetricBases bases{.count = 1, .workspace = bench.reserve(DType::float32, InverseRoots::task_floats(kSize))};
    bases.tasks[0] = {bench.send(factor).reshape({kSize, kSize}), basis, status};
    launch(bench.stream(), bases);
    CHECK(bench.fetch<std::int64_t>(status).front() == kFailed);
    for (std::int64_t i = 0; i < kSize * kSize; ++i) {
        CHECK(bench.fetch(basis)[static_cast<Size>(i)] == (i % (kSize + 1) == 0 ? 1.0F : 0.0F));
    }

    const std::vector<float> old = random_values(kSize * kSize, 9);
    const Tensor product_tensor = bench.send(factor).reshape({kSize, kSize});
    OrthonormalBases renewed{.count = 1,
                             .workspace = bench.reserve(DType::float32, OrthonormalBases::task_floats(kSize))};
    renewed.tasks[0] = {product_tensor, bench.send(old).reshape({kSize, kSize}), order, status};
    launch(bench.stream(), renewed);
    CHECK(bench.fetch<std::int64_t>(status).front() == kFailed);
    CHECK(bench.fetch(product_tensor) == old);

    const Tensor newton = bench.send(std::vector<float>(kSize * kSize, 0.25F)).reshape({kSize, kSize});
    launch(bench.stream(), NewtonRoot{.factor = bench.send(factor).reshape({kSize, kSize}),
                                      .root = newton,
                                      .status = status,
                                      .workspace = bench.reserve(DType::float32, NewtonRoot::workspace_floats(kSize))});
    CHECK(bench.fetch<std::int64_t>(status).front() == kFailed);
    CHECK(bench.fetch(newton) == std::vector<float>(kSize * kSize, 0.25F));
}

TEST_CASE("without a ridge a singular matrix has no root") {
    if (mfsdp::test::without_lapack()) return;
    Bench bench(make_cpu_device({}));
    const Outcome outcome = root_of(bench, {2.0F, 0.0F, 0.0F, 0.0F}, {.workspace = {}, .epsilon = 0.0});
    CHECK(outcome.status == kFailed);
    CHECK(outcome.result == std::vector<float>(4, 7.0F));
    const Outcome twice = root_of(bench, {2.0F, 0.0F, 0.0F, 2.0F}, {.workspace = {}, .epsilon = 0.0});
    CHECK(twice.status == kDone);
    CHECK(twice.result[0] == Approx(0.840896).epsilon(1e-6));
    CHECK(twice.result[1] == 0.0F);
}

TEST_CASE("repeated eigenvalues and rank one are decomposed, null directions get the ridge's gain") {
    if (mfsdp::test::without_lapack()) return;
    constexpr Size kSize = 32;
    Bench bench(make_cpu_device({.threads = 2}));
    for (const Size rank : {Size{1}, kSize / 2, kSize}) {
        Values values(kSize, 0.0);
        std::fill_n(values.begin(), rank, 3.0);
        const std::vector<float> factor = rounded(with_eigenvalues(values, 4));
        const Outcome outcome = root_of(bench, factor, {.workspace = {}, .order = 4, .epsilon = 1e-4});
        INFO("rank " << rank);
        CHECK(outcome.status == kDone);
        // Rounding the factor moves its null eigenvalues by some 5e-7, and negative ones are taken for 0.
        CHECK(residual(widened(outcome.result), widened(factor), 3e-4, 4, kSize) < 4e-3);
    }
}

TEST_CASE("a task has the same bits alone, among others, and beside another device at work") {
    if (mfsdp::test::without_lapack()) return;
    const std::vector<std::int64_t> sizes{96, 33, 64, 7, 150};
    std::vector<std::vector<float>> factors;
    for (const std::int64_t n : sizes) {
        factors.push_back(rounded(with_eigenvalues(spread(static_cast<Size>(n), 1e5), static_cast<std::uint64_t>(n))));
    }
    std::vector<std::vector<float>> alone;
    Bench single(make_cpu_device({}));
    for (const auto& factor : factors) alone.push_back(root_of(single, factor, {}).result);

    const auto all_at_once = [&](int threads) {
        Bench bench(make_cpu_device({.threads = threads}));
        InverseRoots roots;
        roots.count = static_cast<std::int64_t>(sizes.size());
        std::int64_t floats = 0;
        for (Size i = 0; i < sizes.size(); ++i) {
            const std::int64_t n = sizes[i];
            roots.tasks[i] = {bench.send(factors[i]).reshape({n, n}),
                              bench.reserve(DType::float32, n * n).reshape({n, n}), bench.reserve(DType::int64, 1)};
            floats += InverseRoots::task_floats(n);
        }
        roots.workspace = bench.reserve(DType::float32, floats);
        launch(bench.stream(), roots);
        std::vector<std::vector<float>> results;
        for (Size i = 0; i < sizes.size(); ++i) results.push_back(bench.fetch(roots.tasks[i].root));
        return results;
    };
    for (const int threads : {1, 2, 4}) CHECK(all_at_once(threads) == alone);
    std::vector<std::vector<float>> first, second;
    std::thread one([&] { first = all_at_once(2); }), other([&] { second = all_at_once(3); });
    one.join();
    other.join();
    CHECK(first == alone);
    CHECK(second == alone);
}

TEST_CASE("the QR step of a rank-deficient product gives orthonormal columns all the same") {
    if (mfsdp::test::without_lapack()) return;
    constexpr std::int64_t kSize = 20;
    Bench bench(make_cpu_device({}));
    Values values(kSize, 0.0);
    values[0] = 5.0;
    values[1] = 1.0;
    const std::vector<float> identity = [] {
        std::vector<float> result(kSize * kSize, 0.0F);
        for (Size i = 0; i < kSize; ++i) result[i * kSize + i] = 1.0F;
        return result;
    }();
    const Tensor t = bench.send(rounded(with_eigenvalues(values, 2))).reshape({kSize, kSize});
    const Tensor status = bench.reserve(DType::int64, 1);
    OrthonormalBases bases{.count = 1,
                           .workspace = bench.reserve(DType::float32, OrthonormalBases::task_floats(kSize))};
    bases.tasks[0] = {t, bench.send(identity).reshape({kSize, kSize}), bench.reserve(DType::int64, kSize), status};
    launch(bench.stream(), bases);
    CHECK(bench.fetch<std::int64_t>(status).front() == kDone);
    const std::vector<float> q = bench.fetch(t);
    for (Size i = 0; i < kSize; ++i) {
        for (Size j = 0; j < kSize; ++j) {
            double sum = 0.0;
            for (Size k = 0; k < kSize; ++k) {
                sum += static_cast<double>(q[k * kSize + i]) * static_cast<double>(q[k * kSize + j]);
            }
            CHECK(sum == Approx(i == j ? 1.0 : 0.0).margin(1e-5));
        }
    }
}

TEST_CASE("decompositions refuse too many tasks and scratch of another size") {
    const auto refused = [](InverseRoots roots) { CHECK_THROWS_AS(roots.check(), mfsdp::InternalError); };
    const auto tensor = [](std::uintptr_t address, std::initializer_list<std::int64_t> shape,
                           DType dtype = DType::float32) {
        return Tensor::dense(reinterpret_cast<std::byte*>(address), dtype, shape);
    };
    InverseRoots roots{.count = 1, .workspace = tensor(0x1000, {InverseRoots::task_floats(3)})};
    roots.tasks[0] = {tensor(0x100000, {3, 3}), tensor(0x200000, {3, 3}), tensor(0x300000, {1}, DType::int64)};
    CHECK_NOTHROW(roots.check());
    const auto changed = [&](const auto& change) {
        InverseRoots other = roots;
        change(other);
        return other;
    };
    refused(changed([](InverseRoots& r) { r.count = 0; }));
    refused(changed([](InverseRoots& r) { r.count = kMaxTasks + 1; }));
    refused(changed([](InverseRoots& r) { r.order = 0; }));
    refused(changed([&](InverseRoots& r) { r.workspace = tensor(0x1000, {InverseRoots::task_floats(4)}); }));
    refused(changed([&](InverseRoots& r) { r.workspace = tensor(0x1004, {InverseRoots::task_floats(3)}); }));
    refused(changed([&](InverseRoots& r) { r.tasks[0].factor = tensor(0x100000, {3, 4}); }));
    refused(changed([](InverseRoots& r) { r.tasks[0].root = r.tasks[0].factor; }));
    refused(changed([&](InverseRoots& r) { r.tasks[0].status = tensor(0x300000, {1}); }));
}
