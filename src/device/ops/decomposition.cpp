#include "mfsdp/device/ops/decomposition.h"

#include "mfsdp/base/error.h"

#include "device/ops/decomposition_workspace.h"
#include "device/ops/require.h"

#include <string>

namespace mfsdp::device {

namespace {

// FLOPs of a symmetric solver with vectors: reduction to tridiagonal form 4/3 d^3, its eigenvectors up to 8/3 d^3, and
// back 2 d^3, each at about half the rate of a product. 9 d^3 is what it is counted with everywhere.
constexpr std::int64_t kSolverCubes = 9;
constexpr std::int64_t kFloat = size_of(DType::float32);

constexpr std::int64_t cube(std::int64_t n) { return n * n * n; }

void require_square(const Argument& argument, std::int64_t n) {
    require_shape(argument, DType::float32, {n, n});
    require_dense(argument);
}

void require_status(const Argument& argument) { require_shape(argument, DType::int64, {1}); }

void require_count(std::string_view operation, std::int64_t count) {
    MFSDP_ASSERT(count >= 1 && count <= kMaxTasks, std::string(operation) + ": " + std::to_string(count) +
                                                       " tasks, wanted 1 to " + std::to_string(kMaxTasks));
}

// Solvers' bits may depend on where in a line of the cache their memory begins.
void require_workspace(const Argument& argument, std::int64_t floats) {
    require_shape(argument, DType::float32, {floats});
    require_dense(argument);
    MFSDP_ASSERT(reinterpret_cast<std::uintptr_t>(argument.tensor.data) % 64 == 0,
                 std::string(argument.operation) + ": the workspace begins on a multiple of 64 bytes");
}

}  // namespace

std::int64_t InverseRoots::task_floats(std::int64_t n) { return SolverPieces(n).end; }

void InverseRoots::check() const {
    require_count(kName, count);
    MFSDP_ASSERT(order >= 1 && epsilon >= 0.0 && factor_scale > 0.0,
                 "inverse_roots: order, epsilon and scale are positive");
    std::int64_t floats = 0;
    for (const Task& task : std::span(tasks).first(static_cast<std::size_t>(count))) {
        const std::int64_t n = task.factor.rows();
        require_square({kName, "factor", task.factor}, n);
        require_square({kName, "root", task.root}, n);
        require_apart({kName, "root", task.root}, {kName, "factor", task.factor});
        require_status({kName, "status", task.status});
        floats += task_floats(n);
    }
    require_workspace({kName, "workspace", workspace}, floats);
}

// Solver; in one triangle each V^T V, V diag(lambda) V^T and the root.
Cost InverseRoots::cost() const {
    Cost total;
    for (const Task& task : std::span(tasks).first(static_cast<std::size_t>(count))) {
        const std::int64_t n = task.factor.rows();
        total.flops += (kSolverCubes + 3) * cube(n);
        total.bytes += kFloat * 12 * n * n;
    }
    return total;
}

std::int64_t NewtonRoot::workspace_floats(std::int64_t n) { return NewtonPieces(n).end; }

std::int64_t NewtonRoot::products_in_round() const {
    std::int64_t squarings = 0;
    while ((std::int64_t{1} << squarings) < order) ++squarings;
    return 2 + squarings;
}

void NewtonRoot::check() const {
    MFSDP_ASSERT(order == 2 || order == 4 || order == 8, "newton_root: the order is 2, 4 or 8");
    MFSDP_ASSERT(epsilon >= 0.0 && factor_scale > 0.0, "newton_root: epsilon and scale are positive");
    const std::int64_t n = factor.rows();
    require_square({kName, "factor", factor}, n);
    require_square({kName, "root", root}, n);
    require_apart({kName, "root", root}, {kName, "factor", factor});
    require_status({kName, "status", status});
    require_workspace({kName, "workspace", workspace}, workspace_floats(n));
}

Cost NewtonRoot::cost() const {
    const std::int64_t n = factor.rows();
    return {kCountedRounds * products_in_round() * n * n * (n + 1), kCountedRounds * kFloat * 8 * n * n};
}

void SymmetricBases::check() const {
    require_count(kName, count);
    std::int64_t floats = 0;
    for (const Task& task : std::span(tasks).first(static_cast<std::size_t>(count))) {
        const std::int64_t n = task.factor.rows();
        require_square({kName, "factor", task.factor}, n);
        require_square({kName, "basis", task.basis}, n);
        require_apart({kName, "basis", task.basis}, {kName, "factor", task.factor});
        require_status({kName, "status", task.status});
        floats += InverseRoots::task_floats(n);
    }
    require_workspace({kName, "workspace", workspace}, floats);
}

Cost SymmetricBases::cost() const {
    Cost total;
    for (const Task& task : std::span(tasks).first(static_cast<std::size_t>(count))) {
        const std::int64_t n = task.factor.rows();
        total.flops += (kSolverCubes + 2) * cube(n);
        total.bytes += kFloat * 10 * n * n;
    }
    return total;
}

std::int64_t OrthonormalBases::task_floats(std::int64_t n) { return BasisPieces(n).end; }

void OrthonormalBases::check() const {
    require_count(kName, count);
    std::int64_t floats = 0;
    for (const Task& task : std::span(tasks).first(static_cast<std::size_t>(count))) {
        const std::int64_t n = task.product.rows();
        require_square({kName, "product", task.product}, n);
        require_square({kName, "basis", task.basis}, n);
        require_apart({kName, "product", task.product}, {kName, "basis", task.basis});
        require_shape({kName, "order", task.order}, DType::int64, {n});
        require_dense({kName, "order", task.order});
        require_status({kName, "status", task.status});
        floats += task_floats(n);
    }
    require_workspace({kName, "workspace", workspace}, floats);
}

// QR 4/3 d^3, its Q 4/3 d^3, the test in one triangle d^3, energies 2 d^2.
Cost OrthonormalBases::cost() const {
    Cost total;
    for (const Task& task : std::span(tasks).first(static_cast<std::size_t>(count))) {
        const std::int64_t n = task.product.rows();
        total.flops += 11 * cube(n) / 3 + 2 * n * n;
        total.bytes += kFloat * 8 * n * n;
    }
    return total;
}

void AcceptedCopy::check() const {
    require_rank({kName, "in", in}, DType::float32, in.rank);
    require_rank({kName, "out", out}, DType::float32, in.rank);
    MFSDP_ASSERT(same_shape(out, in), "accepted_copy: out is " + out.describe() + ", wanted " + in.describe());
    require_dense({kName, "in", in});
    require_dense({kName, "out", out});
    require_apart({kName, "out", out}, {kName, "in", in});
    require_status({kName, "status", status});
}
Cost AcceptedCopy::cost() const { return {0, 2 * out.bytes()}; }

void CountFailures::check() const {
    require_status({kName, "failures", failures});
    require_shape({kName, "statuses", statuses}, DType::int64, {statuses.count()});
    require_dense({kName, "statuses", statuses});
}
Cost CountFailures::cost() const { return {0, 2 * failures.bytes() + statuses.bytes()}; }

void Permute::check() const {
    require_rank({kName, "in", in}, DType::float32, 2);
    require_shape({kName, "out", out}, DType::float32, {in.rows(), in.columns()});
    require_dense({kName, "in", in});
    require_dense({kName, "out", out});
    require_apart({kName, "out", out}, {kName, "in", in});
    if (row_order.defined()) {
        require_shape({kName, "row_order", row_order}, DType::int64, {in.rows()});
        require_dense({kName, "row_order", row_order});
    }
    if (column_order.defined()) {
        require_shape({kName, "column_order", column_order}, DType::int64, {in.columns()});
        require_dense({kName, "column_order", column_order});
    }
}
Cost Permute::cost() const { return {0, 2 * out.bytes()}; }

}  // namespace mfsdp::device
