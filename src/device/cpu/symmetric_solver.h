#pragma once

#include "mfsdp/device/ops/decomposition.h"

#include "device/cpu/kernels.h"

#include <cstdint>
#include <span>

namespace mfsdp::device::cpu {

/// Eigen-decomposition of A = (factor + factor^T) / 2 on the calling thread, in the memory of one task
/// (InverseRoots::task_floats).
class SymmetricSolver {
  public:
    SymmetricSolver(const Context& context, std::int64_t n, const float* factor, float* memory);

    /// done: vectors and values hold the accepted decomposition.
    [[nodiscard]] TaskStatus solve();
    /// Vector j, at vectors() + j n, belongs to value j; smallest value first.
    [[nodiscard]] float* vectors() const { return vectors_; }
    /// Eigenvalues of A / largest_entry().
    [[nodiscard]] std::span<const double> values() const { return {values_, static_cast<std::size_t>(n_)}; }
    [[nodiscard]] double largest_entry() const { return static_cast<double>(largest_); }

  private:
    [[nodiscard]] float entry(std::int64_t row, std::int64_t column) const {
        return 0.5F * factor_[row * n_ + column] + 0.5F * factor_[column * n_ + row];
    }
    [[nodiscard]] TaskStatus scan();
    template <class T>
    void write_scaled(T* target) const;
    [[nodiscard]] bool solve_in_float();
    [[nodiscard]] bool solve_in_double();
    [[nodiscard]] bool accepted();

    const Context& context_;
    std::int64_t n_;
    const float* factor_;
    float* vectors_;
    float* work_;
    double* values_;
    float* float_values_;
    int* integers_;
    float largest_ = 0.0F;
};

/// Whether the rows of [n, n] are orthonormal: all inner products within 1e-4 of those of the identity. `work` has room
/// for BasisPieces::kWorkRows n floats, or n^2 if that is less.
[[nodiscard]] bool rows_are_orthonormal(const Context& context, std::int64_t n, const float* rows, float* work);

}  // namespace mfsdp::device::cpu
