#pragma once

#include "mfsdp/device/ops/decomposition.h"

#include "device/cuda/kernels.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace mfsdp::device::cuda {

/// What the kernels of one decomposition find out; lies in the workspace or in scratch, as who makes it says.
struct SolverState {
    int largest_bits = 0;    ///< of the largest absolute value, a float >= 0: such bits are ordered like the floats
    int not_finite = 0;      ///< an infinity or NaN was met
    int info = 0;            ///< of the library
    int deviation_bits = 0;  ///< of max|V^T V - I|; those of a NaN are larger than those of every number
    double residual = 0.0;   ///< sum of squares of A V - V diag(lambda)
    double size = 0.0;       ///< sum of squares of A

    [[nodiscard]] __host__ __device__ float largest() const { return std::bit_cast<float>(largest_bits); }
};

/// How far from an orthonormal matrix may be, and a decomposition from its matrix.
inline constexpr float kSolverTolerance = 1e-4F;

/// From what a solver and its test left. Written so that NaN is not accepted.
[[nodiscard]] __host__ __device__ inline TaskStatus status_of(const SolverState& state) {
    if (state.not_finite != 0) return TaskStatus::not_finite;
    if (state.largest_bits == 0) return TaskStatus::zero;
    const bool accepted = state.info == 0 && std::bit_cast<float>(state.deviation_bits) < kSolverTolerance &&
                          sqrt(state.residual) < static_cast<double>(kSolverTolerance) * sqrt(state.size);
    return accepted ? TaskStatus::done : TaskStatus::failed;
}

/// Begins a state anew.
void reset_state(const Context& context, SolverState* state);

/// Rows of a Gram matrix that are tested at a time.
inline constexpr std::int64_t kTestRows = 240;

/// Raises state->deviation_bits to those of the largest difference between the products of rows and the identity.
/// rows [n, n] float32 dense; work has room for kTestRows n floats.
void check_rows_orthonormal(const Context& context, std::int64_t n, float* rows, float* work, SolverState* state);

/// Eigen-decomposition of A = (factor + factor^T) / 2 in the memory of one task (InverseRoots::task_floats). What is
/// not finite, or zero, is decomposed as the identity, which the solver takes in its stride; status_of tells it apart.
class SymmetricSolver {
  public:
    SymmetricSolver(const Context& context, std::int64_t n, const float* factor, float* memory);

    /// Issues the solver in float32 and the test of what it gives.
    void solve_in_float();
    /// The same in float64; the vectors are rounded.
    void solve_in_double();

    /// Vector j, at vectors() + j n, belongs to value j of A / max|A|; smallest value first.
    [[nodiscard]] float* vectors() const { return vectors_; }
    [[nodiscard]] double* values() const { return values_; }
    [[nodiscard]] SolverState* state() const { return state_; }
    /// SolverPieces::work_floats(n), free once the test is over.
    [[nodiscard]] float* work() const { return work_; }
    /// n floats.
    [[nodiscard]] float* scalars() const { return float_values_; }
    [[nodiscard]] std::int64_t side() const { return n_; }

  private:
    void start() const;
    void test() const;

    const Context& context_;
    std::int64_t n_;
    const float* factor_;
    float* vectors_;
    float* work_;
    double* values_;
    float* float_values_;
    SolverState* state_;
};

}  // namespace mfsdp::device::cuda
