#include "mfsdp/device/ops/matmul.h"

#include "device/cuda/reduce.h"
#include "device/cuda/solver.h"
#include "device/cuda/symmetric_solver.h"
#include "device/cuda/vectors.h"
#include "device/ops/decomposition_workspace.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::device::cuda {

namespace {

[[nodiscard]] __device__ inline float entry(const float* factor, std::int64_t n, std::int64_t row,
                                            std::int64_t column) {
    return 0.5F * factor[row * n + column] + 0.5F * factor[column * n + row];
}

__global__ void reset_kernel(SolverState* state) { *state = {}; }

__global__ void __launch_bounds__(kThreads) scan_kernel(SolverState* state, const float* factor, std::int64_t n) {
    const std::int64_t i = global_index();
    const std::int64_t row = quotient(i, n);
    const float size = i < n * n ? fabsf(entry(factor, n, row, i - row * n)) : 0.0F;
    const bool finite = size < INFINITY;
    const float largest = largest_of_row(finite ? size : 0.0F);
    const int bad = __syncthreads_or(finite ? 0 : 1);
    if (threadIdx.x > 0) return;
    if (bad != 0) atomicMax(&state->not_finite, 1);
    atomicMax(&state->largest_bits, std::bit_cast<int>(largest));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    write_scaled_kernel(T* target, const SolverState* state, const float* factor, std::int64_t n) {
    const std::int64_t i = global_index();
    if (i >= n * n) return;
    const std::int64_t row = quotient(i, n), column = i - row * n;
    const float largest = state->largest();
    const bool usable = state->not_finite == 0 && largest > 0.0F;
    const T identity = row == column ? T{1} : T{0};
    target[i] = usable ? static_cast<T>(entry(factor, n, row, column)) / static_cast<T>(largest) : identity;
}

template <class To, class From>
__global__ void __launch_bounds__(kThreads) convert_kernel(To* out, const From* in, std::int64_t count) {
    const std::int64_t i = global_index();
    if (i < count) out[i] = static_cast<To>(in[i]);
}

/// gram [count, n]: rows [first, first + count) of a Gram matrix.
__global__ void __launch_bounds__(kThreads)
    deviation_kernel(SolverState* state, const float* gram, std::int64_t first, std::int64_t count, std::int64_t n) {
    const std::int64_t i = global_index();
    int bits = 0;
    if (i < count * n) {
        const std::int64_t row = quotient(i, n), column = i - row * n;
        bits = std::bit_cast<int>(fabsf(gram[i] - (column == first + row ? 1.0F : 0.0F)));
    }
    MFSDP_SHARED(int, largest);
    if (threadIdx.x == 0) largest = 0;
    __syncthreads();
    atomicMax(&largest, bits);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(&state->deviation_bits, largest);
}

/// out[j, :] = values[j] vectors[j, :]
__global__ void __launch_bounds__(kThreads)
    scale_rows_kernel(float* out, const float* vectors, const double* values, std::int64_t n) {
    const std::int64_t i = global_index();
    if (i < n * n) out[i] = static_cast<float>(values[quotient(i, n)]) * vectors[i];
}

/// partial [blocks, 2]: sums of squares of A / max|A| - product and of A / max|A| over a row of the matrix each.
__global__ void __launch_bounds__(kThreads) residual_kernel(double* partial, const SolverState* state,
                                                            const float* factor, const float* product, std::int64_t n) {
    const std::int64_t row = blockIdx.x;
    const auto largest = static_cast<double>(state->largest());
    double sums[2] = {0.0, 0.0};
    for (std::int64_t column = threadIdx.x; column < n; column += blockDim.x) {
        const double x = static_cast<double>(entry(factor, n, row, column)) / largest;
        const double difference = x - static_cast<double>(product[row * n + column]);
        sums[0] = fma(difference, difference, sums[0]);
        sums[1] = fma(x, x, sums[1]);
    }
    sum_over_row(sums);
    if (threadIdx.x > 0) return;
    partial[2 * row] = sums[0];
    partial[2 * row + 1] = sums[1];
}

__global__ void __launch_bounds__(kThreads)
    sum_residual_kernel(SolverState* state, const double* partial, std::int64_t rows) {
    double sums[2] = {0.0, 0.0};
    for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
        sums[0] += partial[2 * row];
        sums[1] += partial[2 * row + 1];
    }
    sum_over_row(sums);
    if (threadIdx.x > 0) return;
    state->residual = sums[0];
    state->size = sums[1];
}

__global__ void reset_test_kernel(SolverState* state) {
    state->deviation_bits = 0;
    state->residual = state->size = 0.0;
}

[[nodiscard]] Tensor matrix(float* address, std::int64_t rows, std::int64_t columns) {
    return Tensor::dense(reinterpret_cast<std::byte*>(address), DType::float32, {rows, columns});
}

}  // namespace

void reset_state(const Context& context, SolverState* state) {
    launch_kernel(reset_kernel, Grid{1, 1}, context.stream, state);
}

void check_rows_orthonormal(const Context& context, std::int64_t n, float* rows, float* work, SolverState* state) {
    const Tensor all = matrix(rows, n, n);
    for (std::int64_t first = 0; first < n; first += kTestRows) {
        const std::int64_t count = std::min(kTestRows, n - first);
        run(context,
            Matmul{.out = matrix(work, count, n), .a = all.slice(0, first, count), .b = all, .transpose_b = true});
        launch_kernel(deviation_kernel, grid_of(count * n), context.stream, state, work, first, count, n);
    }
}

SymmetricSolver::SymmetricSolver(const Context& context, std::int64_t n, const float* factor, float* memory)
    : context_(context), n_(n), factor_(factor) {
    const SolverPieces pieces(n);
    vectors_ = memory + pieces.vectors;
    work_ = memory + pieces.work;
    values_ = reinterpret_cast<double*>(memory + pieces.values);
    float_values_ = memory + pieces.scalars;
    state_ = reinterpret_cast<SolverState*>(memory + pieces.words);
    static_assert(sizeof(SolverState) <= SolverPieces::word_count(1) * sizeof(float), "the smallest task has room");
}

void SymmetricSolver::start() const {
    reset_state(context_, state_);
    launch_kernel(scan_kernel, grid_of(n_ * n_), context_.stream, state_, factor_, n_);
}

void SymmetricSolver::solve_in_float() {
    start();
    launch_kernel(write_scaled_kernel<float>, grid_of(n_ * n_), context_.stream, vectors_, state_, factor_, n_);
    context_.solver.decompose(context_.stream, context_.scratch, n_, vectors_, float_values_, &state_->info);
    launch_kernel(convert_kernel<double, float>, grid_of(n_), context_.stream, values_, float_values_, n_);
    test();
}

void SymmetricSolver::solve_in_double() {
    start();
    auto* const wide = reinterpret_cast<double*>(work_);
    launch_kernel(write_scaled_kernel<double>, grid_of(n_ * n_), context_.stream, wide, state_, factor_, n_);
    context_.solver.decompose(context_.stream, context_.scratch, n_, wide, values_, &state_->info);
    launch_kernel(convert_kernel<float, double>, grid_of(n_ * n_), context_.stream, vectors_, wide, n_ * n_);
    test();
}

void SymmetricSolver::test() const {
    launch_kernel(reset_test_kernel, Grid{1, 1}, context_.stream, state_);
    check_rows_orthonormal(context_, n_, vectors_, work_, state_);
    // With orthonormal vectors |A V - V diag(lambda)| is |A - V diag(lambda) V^T|.
    float* const product = work_ + n_ * n_;
    launch_kernel(scale_rows_kernel, grid_of(n_ * n_), context_.stream, work_, vectors_, values_, n_);
    run(context_, Matmul{.out = matrix(product, n_, n_),
                         .a = matrix(work_, n_, n_),
                         .b = matrix(vectors_, n_, n_),
                         .transpose_a = true});
    auto* const partial =
        reinterpret_cast<double*>(context_.scratch.reserve(2 * n_ * static_cast<std::int64_t>(sizeof(double))));
    launch_kernel(residual_kernel, Grid{static_cast<unsigned>(n_), static_cast<unsigned>(threads_for(n_, kThreads))},
                  context_.stream, partial, state_, factor_, product, n_);
    launch_kernel(sum_residual_kernel, Grid{1, static_cast<unsigned>(threads_for(n_, kThreads))}, context_.stream,
                  state_, partial, n_);
}

}  // namespace mfsdp::device::cuda
