#include "mfsdp/device/ops/decomposition.h"

#include "device/cpu/kernels.h"
#include "device/cpu/lapack.h"
#include "device/cpu/mirror.h"
#include "device/cpu/panel_product.h"
#include "device/cpu/pieces.h"
#include "device/cpu/symmetric_solver.h"
#include "device/ops/decomposition_workspace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace mfsdp::device::cpu {

namespace {

/// Runs every task of an operation, each on one thread; `memory` is that task's part of the workspace.
template <class Op, class Size, class Body>
void for_tasks(const Context& context, const Op& operation, const Size& floats_of, const Body& body) {
    std::array<std::int64_t, kMaxTasks> offsets{};
    std::int64_t offset = 0;
    for (std::int64_t i = 0; i < operation.count; ++i) {
        offsets[static_cast<std::size_t>(i)] = offset;
        offset += floats_of(operation.tasks[static_cast<std::size_t>(i)]);
    }
    auto* const workspace = context.data<float>(operation.workspace);
    context.threads.parallel_for(operation.count, [&](std::int64_t i) {
        const auto index = static_cast<std::size_t>(i);
        body(operation.tasks[index], workspace + offsets[index]);
    });
}

void set(const Context& context, const Tensor& status, TaskStatus value) {
    *context.data<std::int64_t>(status) = static_cast<std::int64_t>(value);
}

/// root = V diag(f) V^T with f = (max(lambda, 0) + e)^(-1/order), as the product of the scaled vectors with their
/// transpose. False if an f is not finite.
bool rebuild(const Context& context, const InverseRoots& operation, const SymmetricSolver& solver, float* root) {
    const std::span<const double> values = solver.values();
    const auto n = static_cast<std::int64_t>(values.size());
    const double back = solver.largest_entry() * operation.factor_scale;
    const double ridge = operation.relative ? operation.epsilon * values.back() * back : operation.epsilon;
    for (std::int64_t j = 0; j < n; ++j) {
        const double shifted = std::max(values[static_cast<std::size_t>(j)] * back, 0.0) + ridge;
        // Half of the exponent for each of the two factors.
        const auto half = static_cast<float>(std::pow(shifted, -0.5 / static_cast<double>(operation.order)));
        if (!std::isfinite(half)) return false;
        float* const vector = solver.vectors() + j * n;
        for (std::int64_t i = 0; i < n; ++i) vector[i] *= half;
    }
    Product<float> product;
    product.rows = product.columns = product.inner = n;
    product.a = {solver.vectors(), n, true};
    product.b = {solver.vectors(), n, false};
    product.diagonal = 0;
    multiply_panel(context, product, Result<float>{root, n}, nullptr);
    for (std::int64_t row = 0; row < n; row += kMirrorRows) mirror_rows(root, n, row, std::min(kMirrorRows, n - row));
    return true;
}

/// out [n, n] = in transposed, in tiles that the first-level cache holds.
template <class Source>
void write_transposed(float* out, std::int64_t n, const Source& source) {
    constexpr std::int64_t kTile = 16;
    for (std::int64_t row = 0; row < n; row += kTile) {
        for (std::int64_t column = 0; column < n; column += kTile) {
            for (std::int64_t i = row; i < std::min(row + kTile, n); ++i) {
                for (std::int64_t j = column; j < std::min(column + kTile, n); ++j) out[i * n + j] = source(j, i);
            }
        }
    }
}

void write_identity(float* out, std::int64_t n) {
    std::fill_n(out, n * n, 0.0F);
    for (std::int64_t i = 0; i < n; ++i) out[i * n + i] = 1.0F;
}

/// One task of OrthonormalBases in memory.
struct BasisTask {
    std::int64_t n;
    float* product;
    const float* basis;
    std::int64_t* order;
    float* columns;  // of T in the new order, then of the new basis
    float* scalars;
    float* work;
    double* energies;
};

/// energies and order; false if T is not finite. `is_zero` says whether T is zero.
bool order_columns(const BasisTask& task, bool& is_zero) {
    const std::int64_t n = task.n;
    std::fill_n(task.energies, n, 0.0);
    float largest = 0.0F;
    for (std::int64_t i = 0; i < n; ++i) {
        const float* const product = task.product + i * n;
        const float* const basis = task.basis + i * n;
        for (std::int64_t j = 0; j < n; ++j) {
            largest = std::max(largest, std::abs(product[j]));
            task.energies[j] += static_cast<double>(basis[j]) * static_cast<double>(product[j]);
        }
    }
    is_zero = largest == 0.0F;
    if (!std::all_of(task.energies, task.energies + n, [](double energy) { return std::isfinite(energy); })) {
        return false;
    }
    std::iota(task.order, task.order + n, std::int64_t{0});
    std::sort(task.order, task.order + n, [&](std::int64_t a, std::int64_t b) {
        return task.energies[a] != task.energies[b] ? task.energies[a] > task.energies[b] : a < b;
    });
    return true;
}

TaskStatus renew_basis(const Context& context, const BasisTask& task) {
    const std::int64_t n = task.n;
    bool is_zero = false;
    if (!order_columns(task, is_zero)) return TaskStatus::failed;
    if (is_zero) return TaskStatus::zero;
    write_transposed(task.columns, n,
                     [&](std::int64_t i, std::int64_t j) { return task.product[i * n + task.order[j]]; });
    if (context.solver_fault == SolverFault::all || !orthonormalise(n, task.columns, task.scalars, task.work) ||
        !rows_are_orthonormal(context, n, task.columns, task.work)) {
        return TaskStatus::failed;
    }
    write_transposed(task.product, n, [&](std::int64_t i, std::int64_t j) { return task.columns[i * n + j]; });
    return TaskStatus::done;
}

}  // namespace

void run(const Context& context, const InverseRoots& operation) {
    const auto floats = [](const InverseRoots::Task& task) { return InverseRoots::task_floats(task.factor.rows()); };
    for_tasks(context, operation, floats, [&](const InverseRoots::Task& task, float* memory) {
        SymmetricSolver solver(context, task.factor.rows(), context.data<const float>(task.factor), memory);
        TaskStatus status = solver.solve();
        if (status == TaskStatus::done && !rebuild(context, operation, solver, context.data<float>(task.root))) {
            status = TaskStatus::failed;
        }
        set(context, task.status, status);
    });
}

void run(const Context& context, const SymmetricBases& operation) {
    const auto floats = [](const SymmetricBases::Task& task) { return InverseRoots::task_floats(task.factor.rows()); };
    for_tasks(context, operation, floats, [&](const SymmetricBases::Task& task, float* memory) {
        const std::int64_t n = task.factor.rows();
        SymmetricSolver solver(context, n, context.data<const float>(task.factor), memory);
        const TaskStatus status = solver.solve();
        auto* const basis = context.data<float>(task.basis);
        if (status == TaskStatus::done) {
            const float* const vectors = solver.vectors();
            write_transposed(basis, n, [=](std::int64_t i, std::int64_t j) { return vectors[(n - 1 - i) * n + j]; });
        } else {
            write_identity(basis, n);
        }
        set(context, task.status, status);
    });
}

void run(const Context& context, const OrthonormalBases& operation) {
    const auto floats = [](const OrthonormalBases::Task& task) {
        return OrthonormalBases::task_floats(task.product.rows());
    };
    for_tasks(context, operation, floats, [&](const OrthonormalBases::Task& tensors, float* memory) {
        const std::int64_t n = tensors.product.rows();
        const BasisPieces pieces(n);
        const BasisTask task{.n = n,
                             .product = context.data<float>(tensors.product),
                             .basis = context.data<const float>(tensors.basis),
                             .order = context.data<std::int64_t>(tensors.order),
                             .columns = memory + pieces.columns,
                             .scalars = memory + pieces.scalars,
                             .work = memory + pieces.work,
                             .energies = reinterpret_cast<double*>(memory + pieces.energies)};
        const TaskStatus status = renew_basis(context, task);
        if (status != TaskStatus::done) {
            std::copy_n(task.basis, n * n, task.product);
            std::iota(task.order, task.order + n, std::int64_t{0});
        }
        set(context, tensors.status, status);
    });
}

void run(const Context& context, const AcceptedCopy& operation) {
    if (*context.data<const std::int64_t>(operation.status) != static_cast<std::int64_t>(TaskStatus::done)) return;
    float* const out = context.data<float>(operation.out);
    const float* const in = context.data<const float>(operation.in);
    for_pieces(context.threads, operation.out.count(), kPieceElements,
               [=](std::int64_t begin, std::int64_t size) { std::copy_n(in + begin, size, out + begin); });
}

void run(const Context& context, const CountFailures& operation) {
    const auto* const statuses = context.data<const std::int64_t>(operation.statuses);
    const auto* const end = statuses + operation.statuses.count();
    const auto has = [&](TaskStatus status) {
        return std::find(statuses, end, static_cast<std::int64_t>(status)) != end;
    };
    std::int64_t& failures = *context.data<std::int64_t>(operation.failures);
    if (has(TaskStatus::not_finite)) {
        failures += CountFailures::kNotFinite;
    } else {
        failures = has(TaskStatus::failed) ? failures + 1 : 0;
    }
}

void run(const Context& context, const Permute& operation) {
    float* const out = context.data<float>(operation.out);
    const float* const in = context.data<const float>(operation.in);
    const auto* const row_order = context.data<const std::int64_t>(operation.row_order);
    const auto* const column_order = context.data<const std::int64_t>(operation.column_order);
    const std::int64_t columns = operation.in.columns();
    for_row_pieces(context.threads, operation.in.rows(), columns,
                   [=](std::int64_t row, std::int64_t begin, std::int64_t size) {
                       const float* const source = in + (row_order == nullptr ? row : row_order[row]) * columns;
                       float* const target = out + row * columns;
                       for (std::int64_t column = begin; column < begin + size; ++column) {
                           target[column] = source[column_order == nullptr ? column : column_order[column]];
                       }
                   });
}

}  // namespace mfsdp::device::cpu
