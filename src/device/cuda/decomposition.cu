#include "mfsdp/device/ops/decomposition.h"
#include "mfsdp/device/ops/symmetric.h"

#include "device/cuda/host_copies.h"
#include "device/cuda/reduce.h"
#include "device/cuda/solver.h"
#include "device/cuda/symmetric_solver.h"
#include "device/cuda/vectors.h"
#include "device/ops/decomposition_workspace.h"

#include <array>
#include <cmath>
#include <span>
#include <vector>

namespace mfsdp::device::cuda {

namespace {

[[nodiscard]] Tensor matrix(float* address, std::int64_t n) {
    return Tensor::dense(reinterpret_cast<std::byte*>(address), DType::float32, {n, n});
}

constexpr auto kDone = static_cast<std::int64_t>(TaskStatus::done);

/// Solvers of the factors of an operation's tasks, each in its part of the workspace. Solved are all in float32, and
/// where that is not accepted in float64; between the two the host waits.
template <class Op>
std::vector<SymmetricSolver> solve(const Context& context, const Op& operation) {
    std::vector<SymmetricSolver> solvers;
    auto* memory = data<float>(operation.workspace);
    for (const auto& task : std::span(operation.tasks).first(static_cast<std::size_t>(operation.count))) {
        const std::int64_t n = task.factor.rows();
        solvers.emplace_back(context, n, data<const float>(task.factor), memory);
        memory += InverseRoots::task_floats(n);
        solvers.back().solve_in_float();
    }
    std::array<SolverState, kMaxTasks> states{};
    for (std::size_t i = 0; i < solvers.size(); ++i) {
        context.host_copies.to_host(reinterpret_cast<std::byte*>(&states[i]),
                                    reinterpret_cast<const std::byte*>(solvers[i].state()), sizeof(SolverState));
    }
    MFSDP_CUDA(cudaStreamSynchronize(context.stream));
    for (std::size_t i = 0; i < solvers.size(); ++i) {
        if (status_of(states[i]) == TaskStatus::failed) solvers[i].solve_in_double();
    }
    return solvers;
}

__global__ void write_status_kernel(std::int64_t* status, const SolverState* state) {
    *status = static_cast<std::int64_t>(status_of(*state));
}

/// The numbers of InverseRoots.
struct RootNumbers {
    double order, factor_scale, epsilon;
    bool relative;
};

/// factors[j] = (max(lambda_j, 0) + e)^(-1/(2 order)): half of the exponent for each of the two factors of a product.
/// The status of a task that is done becomes `failed` if one is not finite.
__global__ void __launch_bounds__(kThreads)
    root_factors_kernel(float* factors, std::int64_t* status, const SolverState* state, const double* values,
                        std::int64_t n, RootNumbers numbers) {
    // One block, so that the status has one writer.
    const double back = static_cast<double>(state->largest()) * numbers.factor_scale;
    const double ridge = numbers.relative ? numbers.epsilon * values[n - 1] * back : numbers.epsilon;
    int bad = 0;
    for (std::int64_t j = threadIdx.x; j < n; j += blockDim.x) {
        const double eigenvalue = values[j] * back;
        const double shifted = (eigenvalue > 0.0 ? eigenvalue : 0.0) + ridge;
        const auto factor = static_cast<float>(pow(shifted, -0.5 / numbers.order));
        if (!(fabsf(factor) < INFINITY)) bad = 1;
        factors[j] = factor;
    }
    bad = __syncthreads_or(bad);
    if (threadIdx.x == 0 && bad != 0 && *status == kDone) *status = static_cast<std::int64_t>(TaskStatus::failed);
}

/// vectors[j, :] *= factors[j]
__global__ void __launch_bounds__(kThreads) scale_vectors_kernel(float* vectors, const float* factors, std::int64_t n) {
    const std::int64_t i = global_index();
    if (i < n * n) vectors[i] *= factors[quotient(i, n)];
}

/// basis [n, n]: the vectors as columns, the last one first; the identity unless the task is done.
__global__ void __launch_bounds__(kThreads)
    write_basis_kernel(float* basis, const float* vectors, const std::int64_t* status, std::int64_t n) {
    const std::int64_t i = global_index();
    if (i >= n * n) return;
    const std::int64_t row = quotient(i, n), column = i - row * n;
    if (*status == kDone) {
        basis[i] = vectors[(n - 1 - column) * n + row];
    } else {
        basis[i] = row == column ? 1.0F : 0.0F;
    }
}

/// One task of OrthonormalBases.
struct BasisTask {
    std::int64_t n;
    float* product;
    const float* basis;
    std::int64_t* order;
    std::int64_t* status;
    float* columns;  // of T in the new order, then of the new basis
    float* scalars;
    float* work;
    double* energies;
    SolverState* state;
};

/// energies[j] = basis[:, j] . product[:, j], and whether the product is zero and all energies are finite.
__global__ void __launch_bounds__(kThreads) energies_kernel(BasisTask task) {
    const std::int64_t n = task.n, column = global_index();
    float largest = 0.0F;
    bool finite = true;
    if (column < n) {
        double energy = 0.0;
        MFSDP_UNROLL_BY_4
        for (std::int64_t row = 0; row < n; ++row) {
            const float t = task.product[row * n + column];
            largest = fmaxf(largest, fabsf(t));
            energy = fma(static_cast<double>(task.basis[row * n + column]), static_cast<double>(t), energy);
        }
        finite = fabs(energy) < INFINITY;
        task.energies[column] = energy;
    }
    largest = largest_of_row(largest);
    const int bad = __syncthreads_or(finite ? 0 : 1);
    if (threadIdx.x > 0) return;
    atomicMax(&task.state->largest_bits, std::bit_cast<int>(largest));
    if (bad != 0) atomicMax(&task.state->not_finite, 1);
}

/// order: every column's place in a stable sort by falling energy, found by counting.
__global__ void __launch_bounds__(kThreads) order_kernel(BasisTask task) {
    const std::int64_t column = global_index();
    if (column >= task.n) return;
    if (task.state->not_finite != 0) {
        task.order[column] = column;
        return;
    }
    const double energy = task.energies[column];
    std::int64_t place = 0;
    for (std::int64_t other = 0; other < task.n; ++other) {
        const double its = task.energies[other];
        place += its > energy || (its == energy && other < column) ? 1 : 0;
    }
    task.order[place] = column;
}

/// columns[j, i] = product[i, order[j]]; those of the identity where there is nothing to decompose.
__global__ void __launch_bounds__(kThreads) write_columns_kernel(BasisTask task) {
    const std::int64_t n = task.n, index = global_index();
    if (index >= n * n) return;
    const std::int64_t j = quotient(index, n), i = index - j * n;
    const bool usable = task.state->not_finite == 0 && task.state->largest_bits != 0;
    task.columns[index] = usable ? task.product[i * n + task.order[j]] : (i == j ? 1.0F : 0.0F);
}

__global__ void write_basis_status_kernel(BasisTask task) {
    const SolverState& state = *task.state;
    TaskStatus status = TaskStatus::failed;
    if (state.not_finite == 0 && state.largest_bits == 0) status = TaskStatus::zero;
    // Written so that NaN is not accepted.
    const bool accepted = state.info == 0 && std::bit_cast<float>(state.deviation_bits) < kSolverTolerance;
    if (state.not_finite == 0 && state.largest_bits != 0 && accepted) status = TaskStatus::done;
    *task.status = static_cast<std::int64_t>(status);
}

__global__ void __launch_bounds__(kThreads) write_new_basis_kernel(BasisTask task) {
    const std::int64_t n = task.n, index = global_index();
    if (index >= n * n) return;
    const std::int64_t i = quotient(index, n), j = index - i * n;
    const bool done = *task.status == kDone;
    task.product[index] = done ? task.columns[j * n + i] : task.basis[index];
    if (!done && index < n) task.order[index] = index;
}

void renew_basis(const Context& context, const BasisTask& task) {
    const std::int64_t n = task.n;
    reset_state(context, task.state);
    launch_kernel(energies_kernel, grid_of(n), context.stream, task);
    launch_kernel(order_kernel, grid_of(n), context.stream, task);
    launch_kernel(write_columns_kernel, grid_of(n * n), context.stream, task);
    context.solver.orthonormalise(context.stream, context.scratch, n, task.columns, task.scalars, &task.state->info);
    check_rows_orthonormal(context, n, task.columns, task.work, task.state);
    launch_kernel(write_basis_status_kernel, Grid{1, 1}, context.stream, task);
    launch_kernel(write_new_basis_kernel, grid_of(n * n), context.stream, task);
}

__global__ void __launch_bounds__(kThreads)
    accepted_copy_kernel(float* out, const float* in, const std::int64_t* status, DenseExtent<float, float> extent) {
    if (*status != kDone) return;
    for_vectors(
        extent, [=](auto at) { return load_bits(in, at); },
        [=](auto at, const auto& bits) { store_bits(out, at, bits); });
}

__global__ void count_failures_kernel(std::int64_t* failures, const std::int64_t* statuses, std::int64_t count) {
    bool failed = false, not_finite = false;
    for (std::int64_t i = 0; i < count; ++i) {
        failed = failed || statuses[i] == static_cast<std::int64_t>(TaskStatus::failed);
        not_finite = not_finite || statuses[i] == static_cast<std::int64_t>(TaskStatus::not_finite);
    }
    if (not_finite) {
        *failures += CountFailures::kNotFinite;
    } else {
        *failures = failed ? *failures + 1 : 0;
    }
}

__global__ void __launch_bounds__(kThreads)
    permute_kernel(View<float> out, const float* in, const std::int64_t* row_order, const std::int64_t* column_order,
                   std::int64_t columns, RowExtent<float, float> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            constexpr int kLanes = decltype(at)::kLanes;
            const float* const source = in + (row_order == nullptr ? at.row : row_order[at.row]) * columns;
            if (column_order == nullptr) return load<kLanes>(source + at.column);
            Floats<kLanes> result;
            MFSDP_UNROLL
            for (int i = 0; i < kLanes; ++i) result.lane[i] = source[column_order[at.column + i]];
            return result;
        },
        [=](auto at, const auto& values) { store(out, at, values); });
}

}  // namespace

void run(const Context& context, const InverseRoots& operation) {
    const std::vector<SymmetricSolver> solvers = solve(context, operation);
    const RootNumbers numbers{static_cast<double>(operation.order), operation.factor_scale, operation.epsilon,
                              operation.relative};
    for (std::size_t i = 0; i < solvers.size(); ++i) {
        const InverseRoots::Task& task = operation.tasks[i];
        const SymmetricSolver& solver = solvers[i];
        const std::int64_t n = solver.side();
        auto* const status = data<std::int64_t>(task.status);
        launch_kernel(write_status_kernel, Grid{1, 1}, context.stream, status, solver.state());
        launch_kernel(root_factors_kernel, Grid{1, static_cast<unsigned>(threads_for(n, kThreads))}, context.stream,
                      solver.scalars(), status, solver.state(), solver.values(), n, numbers);
        launch_kernel(scale_vectors_kernel, grid_of(n * n), context.stream, solver.vectors(), solver.scalars(), n);
        // The root is the product of the scaled vectors with their transpose; it is kept apart until it is accepted.
        const Tensor root = matrix(solver.work(), n);
        run(context, SymmetricProduct{.out = root, .a = matrix(solver.vectors(), n), .transpose = true});
        run(context, AcceptedCopy{.out = task.root, .in = root, .status = task.status});
    }
}

void run(const Context& context, const SymmetricBases& operation) {
    const std::vector<SymmetricSolver> solvers = solve(context, operation);
    for (std::size_t i = 0; i < solvers.size(); ++i) {
        const SymmetricBases::Task& task = operation.tasks[i];
        const std::int64_t n = solvers[i].side();
        auto* const status = data<std::int64_t>(task.status);
        launch_kernel(write_status_kernel, Grid{1, 1}, context.stream, status, solvers[i].state());
        launch_kernel(write_basis_kernel, grid_of(n * n), context.stream, data<float>(task.basis), solvers[i].vectors(),
                      status, n);
    }
}

void run(const Context& context, const OrthonormalBases& operation) {
    auto* memory = data<float>(operation.workspace);
    for (const auto& tensors : std::span(operation.tasks).first(static_cast<std::size_t>(operation.count))) {
        const std::int64_t n = tensors.product.rows();
        const BasisPieces pieces(n);
        BasisTask task{};
        task.n = n;
        task.product = data<float>(tensors.product);
        task.basis = data<const float>(tensors.basis);
        task.order = data<std::int64_t>(tensors.order);
        task.status = data<std::int64_t>(tensors.status);
        task.columns = memory + pieces.columns;
        task.scalars = memory + pieces.scalars;
        task.work = memory + pieces.work;
        static_assert(sizeof(SolverState) <= (BasisPieces::kWorkRows - kTestRows) * sizeof(float),
                      "the test leaves room behind its rows");
        task.state = reinterpret_cast<SolverState*>(task.work + kTestRows * n);
        task.energies = reinterpret_cast<double*>(memory + pieces.energies);
        renew_basis(context, task);
        memory += pieces.end;
    }
}

void run(const Context& context, const AcceptedCopy& operation) {
    const auto extent = extent_of<DenseExtent<float, float>>({operation.out, operation.in});
    launch_kernel(accepted_copy_kernel, extent.grid(), context.stream, data<float>(operation.out),
                  data<const float>(operation.in), data<const std::int64_t>(operation.status), extent);
}

void run(const Context& context, const CountFailures& operation) {
    launch_kernel(count_failures_kernel, Grid{1, 1}, context.stream, data<std::int64_t>(operation.failures),
                  data<const std::int64_t>(operation.statuses), operation.statuses.count());
}

void run(const Context& context, const Permute& operation) {
    const std::int64_t columns = operation.in.columns();
    const auto extent =
        extent_of_rows<RowExtent<float, float>>(operation.in.rows(), columns, {operation.out, operation.in});
    launch_kernel(permute_kernel, extent.grid(), context.stream, rows_of<float>(operation.out, columns),
                  data<const float>(operation.in), data<const std::int64_t>(operation.row_order),
                  data<const std::int64_t>(operation.column_order), columns, extent);
}

}  // namespace mfsdp::device::cuda
