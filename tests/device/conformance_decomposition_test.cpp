#include "mfsdp/device/cpu_device.h"
#include "mfsdp/device/memory.h"
#include "mfsdp/device/ops/decomposition.h"

#include "device/conformance.h"
#include "device/jacobi.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace mfsdp::device::conformance {

namespace {

using Size = std::size_t;

/// Correlations that fall with the distance: symmetric, positive, and no two eigenvalues alike.
Filling correlations(std::int64_t n, double base, double factor = 1.0) {
    return [=](std::int64_t index, Random&) {
        const std::int64_t row = index / n, column = index % n;
        return factor * std::pow(base, static_cast<double>(std::abs(row - column))) *
               (1.0 + 0.02 * static_cast<double>(row + column));
    };
}

Filling constant(double value) { return list({value}); }

/// A row whose launch needs scratch: `issue` gets the tensors and scratch of so many floats.
Row with_scratch(std::string_view operation, std::string parameters, std::vector<ArgumentOfRow> arguments,
                 std::int64_t floats, std::function<void(Stream&, Tensors, const Tensor&)> issue,
                 std::function<void(Values&)> reference, Tolerance tolerance) {
    const auto launch = [floats, issue = std::move(issue)](Stream& stream, Tensors tensors) {
        MemoryLedger ledger;
        const Buffer buffer(stream.device(), ledger, MemoryCategory::workspace, 4 * floats);
        issue(stream, tensors, buffer.view(DType::float32, {floats}));
        stream.synchronize();
    };
    return {operation, std::move(parameters), std::move(arguments), launch, std::move(reference), tolerance};
}

ArgumentOfRow status(const std::string& name) { return output(name, {1}, Gaps::forbidden, DType::int64); }

struct RootCase {
    std::int64_t n, order;
    double epsilon;
    bool relative;
    double scale = 1.0;
    double size = 1.0;
};

std::string describe(const RootCase& c) {
    return sizes({{"n", c.n}, {"order", c.order}}) + " epsilon " + std::to_string(c.epsilon) +
           (c.relative ? " relative" : "") + " scale " + std::to_string(c.scale) + " size " +
           std::to_string(std::log10(c.size));
}

void expect_root(const RootCase& c, const std::vector<double>& factor, std::vector<double>& root) {
    std::vector<double> scaled = factor;
    for (double& value : scaled) value *= c.scale;
    root = reference::inverse_root(scaled, static_cast<Size>(c.n), static_cast<double>(c.order), c.epsilon, c.relative);
}

/// Two tasks of different sizes in one operation.
void add_root_row(std::vector<Row>& rows, const RootCase& c) {
    const std::int64_t m = c.n / 2 + 1;
    rows.push_back(with_scratch(
        InverseRoots::kName, describe(c),
        {input("factor", {c.n, c.n}, correlations(c.n, 0.6, c.size)), output("root", {c.n, c.n}), status("status"),
         input("other factor", {m, m}, correlations(m, 0.3, c.size)), output("other root", {m, m}),
         status("other status")},
        InverseRoots::task_floats(c.n) + InverseRoots::task_floats(m),
        [c](Stream& stream, Tensors t, const Tensor& scratch) {
            InverseRoots roots{.count = 2,
                               .workspace = scratch,
                               .order = c.order,
                               .factor_scale = c.scale,
                               .epsilon = c.epsilon,
                               .relative = c.relative};
            roots.tasks[0] = {t[0], t[1], t[2]};
            roots.tasks[1] = {t[3], t[4], t[5]};
            launch(stream, roots);
        },
        [c, m](Values& v) {
            expect_root(c, v[0], v[1]);
            RootCase other = c;
            other.n = m;
            expect_root(other, v[3], v[4]);
            v[2] = v[5] = {0.0};
        },
        Tolerance{.of_largest = 1e-5}));
}

/// Where there is nothing to decompose the root stays what it was.
void add_untouched_root_row(std::vector<Row>& rows, double value, TaskStatus expected) {
    constexpr std::int64_t kSize = 6;
    rows.push_back(with_scratch(
        InverseRoots::kName, std::isnan(value) ? "of NaN" : "of zero",
        {input("factor", {kSize, kSize}, constant(value)), in_out("root", {kSize, kSize}), status("status")},
        InverseRoots::task_floats(kSize),
        [](Stream& stream, Tensors t, const Tensor& scratch) {
            InverseRoots roots{.count = 1, .workspace = scratch};
            roots.tasks[0] = {t[0], t[1], t[2]};
            launch(stream, roots);
        },
        [expected](Values& v) { v[2] = {static_cast<double>(expected)}; }, Tolerance{}));
}

void add_newton_row(std::vector<Row>& rows, const RootCase& c) {
    rows.push_back(with_scratch(
        NewtonRoot::kName, describe(c),
        {input("factor", {c.n, c.n}, correlations(c.n, 0.6, c.size)), output("root", {c.n, c.n}), status("status")},
        NewtonRoot::workspace_floats(c.n),
        [c](Stream& stream, Tensors t, const Tensor& scratch) {
            launch(stream, NewtonRoot{.factor = t[0],
                                      .root = t[1],
                                      .status = t[2],
                                      .workspace = scratch,
                                      .order = c.order,
                                      .factor_scale = c.scale,
                                      .epsilon = c.epsilon,
                                      .relative = c.relative});
        },
        [c](Values& v) {
            expect_root(c, v[0], v[1]);
            v[2] = {0.0};
        },
        Tolerance{.of_largest = 2e-5}));
}

/// The signs of eigenvectors are free: compared are B^T A B, which must be the eigenvalues in falling order, and B^T B.
void add_eigenbasis_row(std::vector<Row>& rows, std::int64_t n) {
    rows.push_back(with_scratch(
        SymmetricBases::kName, sizes({{"n", n}}),
        {input("factor", {n, n}, correlations(n, 0.7)), status("status"), output("diagonalised", {n, n}),
         output("gram", {n, n})},
        InverseRoots::task_floats(n) + 2 * n * n,
        [n](Stream& stream, Tensors t, const Tensor& scratch) {
            const std::int64_t floats = InverseRoots::task_floats(n);
            const Tensor basis = scratch.slice(0, floats, n * n).reshape({n, n});
            const Tensor product = scratch.slice(0, floats + n * n, n * n).reshape({n, n});
            SymmetricBases bases{.count = 1, .workspace = scratch.slice(0, 0, floats)};
            bases.tasks[0] = {t[0], basis, t[1]};
            launch(stream, bases);
            launch(stream, Matmul{.out = product, .a = t[0], .b = basis});
            launch(stream, Matmul{.out = t[2], .a = basis, .b = product, .transpose_a = true});
            launch(stream, Matmul{.out = t[3], .a = basis, .b = basis, .transpose_a = true});
        },
        [n](Values& v) {
            const auto size = static_cast<Size>(n);
            const reference::SymmetricEigen eigen = reference::jacobi(v[0], size);
            v[1] = {0.0};
            v[2].assign(size * size, 0.0);
            v[3].assign(size * size, 0.0);
            for (Size i = 0; i < size; ++i) {
                v[2][i * size + i] = eigen.values[i];
                v[3][i * size + i] = 1.0;
            }
        },
        Tolerance{.of_largest = 1e-5}));
}

void add_identity_basis_row(std::vector<Row>& rows, double value, TaskStatus expected) {
    constexpr std::int64_t kSize = 5;
    rows.push_back(with_scratch(
        SymmetricBases::kName, std::isnan(value) ? "of NaN" : "of zero",
        {input("factor", {kSize, kSize}, constant(value)), output("basis", {kSize, kSize}), status("status")},
        InverseRoots::task_floats(kSize),
        [](Stream& stream, Tensors t, const Tensor& scratch) {
            SymmetricBases bases{.count = 1, .workspace = scratch};
            bases.tasks[0] = {t[0], t[1], t[2]};
            launch(stream, bases);
        },
        [expected](Values& v) {
            for (Size i = 0; i < v[1].size(); ++i) v[1][i] = i % (kSize + 1) == 0 ? 1.0 : 0.0;
            v[2] = {static_cast<double>(expected)};
        },
        Tolerance{}));
}

/// Columns of t in falling order of b_j . t_j, and then Gram-Schmidt, twice.
void expect_basis(const std::vector<double>& t, const std::vector<double>& b, Size n, std::vector<double>& squares,
                  std::vector<double>& order) {
    std::vector<double> energy(n, 0.0);
    for (Size i = 0; i < n; ++i) {
        for (Size j = 0; j < n; ++j) energy[j] += b[i * n + j] * t[i * n + j];
    }
    std::vector<Size> places(n);
    std::iota(places.begin(), places.end(), Size{0});
    std::stable_sort(places.begin(), places.end(), [&](Size x, Size y) { return energy[x] > energy[y]; });
    std::vector<std::vector<double>> columns;
    for (const Size place : places) {
        std::vector<double> column(n);
        for (Size i = 0; i < n; ++i) column[i] = t[i * n + place];
        for (int pass = 0; pass < 2; ++pass) {
            for (const std::vector<double>& before : columns) {
                const double along = std::inner_product(before.begin(), before.end(), column.begin(), 0.0);
                for (Size i = 0; i < n; ++i) column[i] -= along * before[i];
            }
        }
        const double length = std::sqrt(std::inner_product(column.begin(), column.end(), column.begin(), 0.0));
        for (double& x : column) x /= length;
        columns.push_back(std::move(column));
    }
    for (Size j = 0; j < n; ++j) {
        order[j] = static_cast<double>(places[j]);
        for (Size i = 0; i < n; ++i) squares[i * n + j] = columns[j][i] * columns[j][i];
    }
}

/// The signs of the columns are free: squares of the entries are compared.
void add_orthonormal_row(std::vector<Row>& rows, std::int64_t n) {
    rows.push_back(with_scratch(
        OrthonormalBases::kName, sizes({{"n", n}}),
        {in_out("product", {n, n}), input("basis", {n, n}), output("order", {n}, Gaps::forbidden, DType::int64),
         status("status"), output("squares", {n, n})},
        OrthonormalBases::task_floats(n) + n * n,
        [n](Stream& stream, Tensors t, const Tensor& scratch) {
            const std::int64_t floats = OrthonormalBases::task_floats(n);
            OrthonormalBases bases{.count = 1, .workspace = scratch.slice(0, 0, floats)};
            const Tensor product = scratch.slice(0, floats, n * n).reshape({n, n});
            launch(stream, Copy{.out = product, .in = t[0]});
            bases.tasks[0] = {product, t[1], t[2], t[3]};
            launch(stream, bases);
            launch(stream, Fill{.out = t[4], .value = 0.0});
            // The argument becomes the square of the new basis: moments with nothing of the old value.
            launch(stream, EigenbasisMoments{.out = t[0],
                                             .exp_avg = scratch.slice(0, 0, n * n).reshape({n, n}),
                                             .exp_avg_sq = t[4],
                                             .gradient = product,
                                             .beta1 = 0.0F,
                                             .beta2 = 0.0F,
                                             .one_minus_beta2 = 1.0F});
            launch(stream, Fill{.out = t[0], .value = 1.0});
        },
        [n](Values& v) {
            v[4].assign(v[0].size(), 0.0);
            expect_basis(v[0], v[1], static_cast<Size>(n), v[4], v[2]);
            v[3] = {0.0};
            std::fill(v[0].begin(), v[0].end(), 1.0);
        },
        Tolerance{.of_largest = 2e-5}));
}

void add_kept_basis_row(std::vector<Row>& rows, double value, TaskStatus expected) {
    constexpr std::int64_t kSize = 4;
    rows.push_back(with_scratch(
        OrthonormalBases::kName, std::isnan(value) ? "of NaN" : "of zero",
        {in_out("product", {kSize, kSize}, constant(value)), input("basis", {kSize, kSize}),
         output("order", {kSize}, Gaps::forbidden, DType::int64), status("status")},
        OrthonormalBases::task_floats(kSize),
        [](Stream& stream, Tensors t, const Tensor& scratch) {
            OrthonormalBases bases{.count = 1, .workspace = scratch};
            bases.tasks[0] = {t[0], t[1], t[2], t[3]};
            launch(stream, bases);
        },
        [expected](Values& v) {
            v[0] = v[1];
            v[2] = {0.0, 1.0, 2.0, 3.0};
            v[3] = {static_cast<double>(expected)};
        },
        Tolerance{}));
}

void add_accepted_copy_row(std::vector<Row>& rows, TaskStatus status_value) {
    const auto value = static_cast<double>(status_value);
    rows.push_back(row<AcceptedCopy>(
        "status " + std::to_string(value),
        {in_out("out", {40, 7}), input("in", {40, 7}),
         input("status", {1}, constant(value), Gaps::forbidden, DType::int64)},
        [](Tensors t) {
            return AcceptedCopy{t[0], t[1], t[2]};
        },
        [status_value](Values& v) {
            if (status_value == TaskStatus::done) v[0] = v[1];
        },
        Tolerance{}));
}

void add_count_row(std::vector<Row>& rows, const std::string& text, std::vector<double> statuses, double before,
                   double after) {
    const auto count = static_cast<std::int64_t>(statuses.size());
    rows.push_back(row<CountFailures>(
        text,
        {in_out("failures", {1}, constant(before), Gaps::forbidden, DType::int64),
         input("statuses", {count}, list(std::move(statuses)), Gaps::forbidden, DType::int64)},
        [](Tensors t) {
            return CountFailures{t[0], t[1]};
        },
        [after](Values& v) { v[0] = {after}; }, Tolerance{}));
}

void add_permute_row(std::vector<Row>& rows, std::int64_t m, std::int64_t n, bool by_rows, bool by_columns) {
    const auto turned = [](std::int64_t count) {
        return Filling([count](std::int64_t index, Random&) { return static_cast<double>((index + 2) % count); });
    };
    rows.push_back(row<Permute>(
        sizes({{"m", m}, {"n", n}}) + (by_rows ? " rows" : "") + (by_columns ? " columns" : ""),
        {output("out", {m, n}), input("in", {m, n}), input("rows", {m}, turned(m), Gaps::forbidden, DType::int64),
         input("columns", {n}, turned(n), Gaps::forbidden, DType::int64)},
        [=](Tensors t) {
            return Permute{t[0], t[1], by_rows ? t[2] : Tensor{}, by_columns ? t[3] : Tensor{}};
        },
        [=](Values& v) {
            for (std::int64_t i = 0; i < m; ++i) {
                for (std::int64_t j = 0; j < n; ++j) {
                    const std::int64_t from_row = by_rows ? (i + 2) % m : i, from_column = by_columns ? (j + 2) % n : j;
                    v[0][static_cast<Size>(i * n + j)] = v[1][static_cast<Size>(from_row * n + from_column)];
                }
            }
        },
        Tolerance{}));
}

/// Rows whose operation calls LAPACK.
void add_solver_rows(std::vector<Row>& rows, std::span<const RootCase> cases) {
    for (const RootCase& c : cases) add_root_row(rows, c);
    for (const std::int64_t n : {1, 2, 9, 40}) {
        add_eigenbasis_row(rows, n);
        add_orthonormal_row(rows, n);
    }
}

}  // namespace

std::vector<Row> decomposition_rows() {
    std::vector<Row> rows;
    const std::vector<RootCase> cases{{1, 4, 1e-6, true},
                                      {2, 2, 1e-6, true},
                                      {7, 4, 1e-6, true},
                                      {20, 8, 1e-6, true, 0.37},
                                      {33, 4, 0.01, false},
                                      {33, 2, 1e-6, true, 1.0, 1e-30},
                                      {9, 4, 1e-3, true, 20.0, 1e20}};
    for (const RootCase& c : cases) add_newton_row(rows, c);
    if (cpu_has_lapack()) {
        add_solver_rows(rows, cases);
    } else {
        WARN(
            "rows of InverseRoots, SymmetricBases and OrthonormalBases skipped: this program was built without LAPACK");
    }
    add_untouched_root_row(rows, 0.0, TaskStatus::zero);
    add_untouched_root_row(rows, std::nan(""), TaskStatus::not_finite);
    add_identity_basis_row(rows, 0.0, TaskStatus::zero);
    add_identity_basis_row(rows, std::nan(""), TaskStatus::not_finite);
    add_kept_basis_row(rows, 0.0, TaskStatus::zero);
    add_kept_basis_row(rows, std::nan(""), TaskStatus::failed);
    for (const TaskStatus status_value :
         {TaskStatus::done, TaskStatus::zero, TaskStatus::failed, TaskStatus::not_finite}) {
        add_accepted_copy_row(rows, status_value);
    }
    const auto infinite = static_cast<double>(CountFailures::kNotFinite);
    add_count_row(rows, "both done", {0.0, 0.0}, 2.0, 0.0);
    add_count_row(rows, "one failed", {0.0, 2.0}, 2.0, 3.0);
    add_count_row(rows, "both failed", {2.0, 2.0}, 0.0, 1.0);
    add_count_row(rows, "one zero", {1.0}, 5.0, 0.0);
    add_count_row(rows, "not finite", {3.0, 0.0}, 1.0, 1.0 + infinite);
    for (const bool by_rows : {false, true}) {
        for (const bool by_columns : {false, true}) {
            add_permute_row(rows, 5, 9, by_rows, by_columns);
            add_permute_row(rows, 300, 70, by_rows, by_columns);
        }
    }
    return rows;
}

}  // namespace mfsdp::device::conformance
