#include "mfsdp/device/ops/decomposition.h"
#include "mfsdp/device/ops/symmetric.h"

#include "device/cpu/kernels.h"
#include "device/cpu/pieces.h"
#include "device/ops/newton_iteration.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace mfsdp::device::cpu {

namespace {

/// a . b in double: eight sums that the processor adds side by side, whose order is fixed.
double dot(const float* a, const float* b, std::int64_t count) {
    constexpr std::size_t kLanes = 8;
    std::array<double, kLanes> sums{};
    std::int64_t i = 0;
    for (; i + static_cast<std::int64_t>(kLanes) <= count; i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            const auto at = i + static_cast<std::int64_t>(lane);
            sums[lane] += static_cast<double>(a[at]) * static_cast<double>(b[at]);
        }
    }
    double rest = 0.0;
    for (; i < count; ++i) rest += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    for (const double sum : sums) rest += sum;
    return rest;
}

/// The largest |value|, infinity or NaN where there is one. Of numbers without a sign the bits have the same order, and
/// those of infinity and NaN are above all others; integers are compared many at a time.
float largest_size(const float* values, std::int64_t count) {
    std::int32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        largest = std::max(largest, std::bit_cast<std::int32_t>(values[i]) & 0x7FFFFFFF);
    }
    return std::bit_cast<float>(largest);
}

/// What NewtonIteration asks of a backend.
class NewtonPrimitives {
  public:
    NewtonPrimitives(const Context& context, const NewtonRoot& operation)
        : context_(context),
          operation_(operation),
          n_(operation.factor.rows()),
          vector_(data(operation.workspace) + NewtonPieces(n_).vectors),
          image_(vector_ + n_) {}

    [[nodiscard]] ScaledFactor scale(const Tensor& matrix) const {
        const float* const factor = data(operation_.factor);
        float* const y = data(matrix);
        const std::int64_t n = n_;
        for_rows([=](std::int64_t row) {
            for (std::int64_t column = 0; column < n; ++column) {
                y[row * n + column] = 0.5F * factor[row * n + column] + 0.5F * factor[column * n + row];
            }
        });
        const float largest = largest_of_rows(y);
        if (!std::isfinite(largest)) return {.status = TaskStatus::not_finite};
        if (largest == 0.0F) return {.status = TaskStatus::zero};
        if (context_.solver_fault != SolverFault::none) return {.status = TaskStatus::failed};
        for_rows([=](std::int64_t row) {
            for (std::int64_t i = row * n; i < (row + 1) * n; ++i) y[i] /= largest;
        });
        return {.largest = largest};
    }

    [[nodiscard]] double largest_eigenvalue(const Tensor& matrix) const {
        const float* const y = data(matrix);
        float* const vector = vector_;
        float* const image = image_;
        const std::int64_t n = n_;
        // A vector without symmetries.
        for (std::int64_t i = 0; i < n; ++i) vector[i] = 1.0F + 0.5F * std::sin(static_cast<float>(i % 1024));
        double quotient = 0.0;
        for (int round = 0; round < kPowerSteps; ++round) {
            for_rows([=](std::int64_t row) { image[row] = static_cast<float>(dot(y + row * n, vector, n)); });
            const double length = dot(vector, vector, n), next_length = dot(image, image, n);
            if (length == 0.0 || next_length == 0.0) return quotient;
            quotient = dot(vector, image, n) / length;
            const double scale = 1.0 / std::sqrt(next_length);
            for (std::int64_t i = 0; i < n; ++i) {
                vector[i] = static_cast<float>(static_cast<double>(image[i]) * scale);
            }
        }
        return quotient;
    }

    void add_ridge(const Tensor& matrix, float ridge) const {
        float* const y = data(matrix);
        for (std::int64_t i = 0; i < n_; ++i) y[i * n_ + i] += ridge;
    }

    [[nodiscard]] double norm(const Tensor& matrix) const {
        const float* const y = data(matrix);
        return std::sqrt(dot(y, y, n_ * n_));
    }

    void start(const Tensor& matrix, const Tensor& identity, float z_of_y, float z_of_x) const {
        float* const y = data(matrix);
        float* const x = data(identity);
        const std::int64_t n = n_;
        for_rows([=](std::int64_t row) {
            for (std::int64_t i = row * n; i < (row + 1) * n; ++i) y[i] *= z_of_y;
            std::fill_n(x + row * n, n, 0.0F);
            x[row * n + row] = z_of_x;
        });
    }

    [[nodiscard]] float error(const Tensor& matrix) const {
        const float* const y = data(matrix);
        float* const of_row = image_;
        const std::int64_t n = n_;
        for_rows([=](std::int64_t row) {
            const float* const values = y + row * n;
            const std::array<float, 3> parts{largest_size(values, row), values[row] - 1.0F,
                                             largest_size(values + row + 1, n - row - 1)};
            of_row[row] = largest_size(parts.data(), std::ssize(parts));
        });
        return largest_size(of_row, n);
    }

    void write_step(const Tensor& out, const Tensor& matrix, float diagonal, float factor) const {
        const float* const y = data(matrix);
        float* const step = data(out);
        const std::int64_t n = n_;
        for_rows([=](std::int64_t row) {
            for (std::int64_t i = row * n; i < (row + 1) * n; ++i) step[i] = -factor * y[i];
            step[row * n + row] += diagonal;
        });
    }

    void multiply(const Tensor& out, const Tensor& a, const Tensor& b) const {
        cpu::run(context_, SymmetricProduct{.out = out, .a = a, .b = b});
    }

    void write_root(const Tensor& matrix, float back) const {
        float* const root = data(operation_.root);
        const float* const x = data(matrix);
        for_pieces(context_.threads, n_ * n_, kPieceElements, [=](std::int64_t begin, std::int64_t size) {
            for (std::int64_t i = begin; i < begin + size; ++i) root[i] = back * x[i];
        });
    }

  private:
    [[nodiscard]] float* data(const Tensor& tensor) const { return context_.data<float>(tensor); }

    /// Calls body(row) for every row, on any threads.
    template <class Body>
    void for_rows(const Body& body) const {
        const std::int64_t rows = std::max<std::int64_t>(1, kPieceElements / n_);
        for_pieces(context_.threads, n_, rows, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t row = first; row < first + count; ++row) body(row);
        });
    }

    /// The largest size in a matrix.
    [[nodiscard]] float largest_of_rows(const float* values) const {
        float* const of_row = image_;
        const std::int64_t n = n_;
        for_rows([=](std::int64_t row) { of_row[row] = largest_size(values + row * n, n); });
        return largest_size(of_row, n);
    }

    const Context& context_;
    const NewtonRoot& operation_;
    std::int64_t n_;
    float* vector_;  // [n] each: of the power steps, and one value of every row
    float* image_;
};

}  // namespace

void run(const Context& context, const NewtonRoot& operation) {
    const NewtonPrimitives primitives(context, operation);
    const TaskStatus status = NewtonIteration(operation, primitives).run();
    *context.data<std::int64_t>(operation.status) = static_cast<std::int64_t>(status);
}

}  // namespace mfsdp::device::cpu
