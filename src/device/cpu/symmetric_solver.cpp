#include "device/cpu/symmetric_solver.h"

#include "mfsdp/base/error.h"

#include "device/cpu/lapack.h"
#include "device/cpu/panel_product.h"
#include "device/ops/decomposition_workspace.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::device::cpu {

namespace {

constexpr double kTolerance = 1e-4;
// Rows of a test's products at a time.
constexpr std::int64_t kTestRows = BasisPieces::kWorkRows;

/// Rows [first, first + rows) of left right, from column `first` on; left, right [n, n]. out [rows, n]
void multiply_rows(const Context& context, float* out, std::int64_t first, std::int64_t rows, MatrixOperand<float> left,
                   MatrixOperand<float> right, std::int64_t n) {
    left.data += left.transposed ? first : first * n;
    right.data += right.transposed ? first * n : first;
    Product<float> product;
    product.rows = rows;
    product.columns = n - first;
    product.inner = n;
    product.a = left;
    product.b = right;
    product.diagonal = 0;
    multiply_panel(context, product, Result<float>{out + first, n}, nullptr);
}

}  // namespace

bool rows_are_orthonormal(const Context& context, std::int64_t n, const float* rows, float* work) {
    for (std::int64_t first = 0; first < n; first += kTestRows) {
        const std::int64_t count = std::min(kTestRows, n - first);
        multiply_rows(context, work, first, count, {rows, n, false}, {rows, n, true}, n);
        for (std::int64_t row = 0; row < count; ++row) {
            for (std::int64_t column = first + row; column < n; ++column) {
                const double wanted = column == first + row ? 1.0 : 0.0;
                // Written so that NaN is not orthonormal.
                if (!(std::abs(static_cast<double>(work[row * n + column]) - wanted) < kTolerance)) return false;
            }
        }
    }
    return true;
}

SymmetricSolver::SymmetricSolver(const Context& context, std::int64_t n, const float* factor, float* memory)
    : context_(context), n_(n), factor_(factor) {
    const SolverPieces pieces(n);
    vectors_ = memory + pieces.vectors;
    work_ = memory + pieces.work;
    values_ = reinterpret_cast<double*>(memory + pieces.values);
    float_values_ = memory + pieces.scalars;
    integers_ = reinterpret_cast<int*>(memory + pieces.words);
}

TaskStatus SymmetricSolver::scan() {
    largest_ = 0.0F;
    bool finite = true;
    for (std::int64_t row = 0; row < n_; ++row) {
        for (std::int64_t column = 0; column <= row; ++column) {
            const float size = std::abs(entry(row, column));
            finite = finite && std::isfinite(size);
            largest_ = std::max(largest_, size);
        }
    }
    if (!finite) return TaskStatus::not_finite;
    return largest_ == 0.0F ? TaskStatus::zero : TaskStatus::done;
}

template <class T>
void SymmetricSolver::write_scaled(T* target) const {
    for (std::int64_t row = 0; row < n_; ++row) {
        for (std::int64_t column = 0; column < n_; ++column) {
            target[row * n_ + column] = static_cast<T>(entry(row, column)) / static_cast<T>(largest_);
        }
    }
}

bool SymmetricSolver::solve_in_float() {
    if (context_.solver_fault != SolverFault::none) return false;
    write_scaled(vectors_);
    if (!eigen_decompose(n_, vectors_, float_values_, work_, integers_)) return false;
    std::copy_n(float_values_, n_, values_);
    return true;
}

bool SymmetricSolver::solve_in_double() {
    if (context_.solver_fault == SolverFault::all) return false;
    auto* const matrix = reinterpret_cast<double*>(work_);
    write_scaled(matrix);
    if (!eigen_decompose(n_, matrix, values_, matrix + n_ * n_)) return false;
    for (std::int64_t i = 0; i < n_ * n_; ++i) vectors_[i] = static_cast<float>(matrix[i]);
    return true;
}

bool SymmetricSolver::accepted() {
    if (!std::all_of(values_, values_ + n_, [](double value) { return std::isfinite(value); })) return false;
    float* const scaled = work_;
    float* const products = work_ + n_ * n_;
    if (!rows_are_orthonormal(context_, n_, vectors_, products)) return false;
    // With orthonormal vectors |A V - V diag(lambda)| is |A - V diag(lambda) V^T|, which is symmetric: half the work.
    for (std::int64_t j = 0; j < n_; ++j) {
        const auto value = static_cast<float>(values_[j]);
        for (std::int64_t i = 0; i < n_; ++i) scaled[j * n_ + i] = value * vectors_[j * n_ + i];
    }
    double residual = 0.0, size = 0.0;
    for (std::int64_t first = 0; first < n_; first += kTestRows) {
        const std::int64_t count = std::min(kTestRows, n_ - first);
        multiply_rows(context_, products, first, count, {scaled, n_, true}, {vectors_, n_, false}, n_);
        for (std::int64_t row = first; row < first + count; ++row) {
            for (std::int64_t column = row; column < n_; ++column) {
                const double x = static_cast<double>(entry(row, column)) / static_cast<double>(largest_);
                const double difference = x - static_cast<double>(products[(row - first) * n_ + column]);
                const double weight = column == row ? 1.0 : 2.0;
                size += weight * x * x;
                residual += weight * difference * difference;
            }
        }
    }
    return std::sqrt(residual) < kTolerance * std::sqrt(size);
}

TaskStatus SymmetricSolver::solve() {
    const TaskStatus status = scan();
    if (status != TaskStatus::done) return status;
    if (solve_in_float() && accepted()) return TaskStatus::done;
    return solve_in_double() && accepted() ? TaskStatus::done : TaskStatus::failed;
}

}  // namespace mfsdp::device::cpu
