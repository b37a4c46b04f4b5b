#include "mfsdp/device/ops/decomposition.h"
#include "mfsdp/device/ops/symmetric.h"

#include "device/cpu/kernels.h"
#include "device/cpu/pieces.h"
#include "device/ops/newton_limits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

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

/// The coupled iteration of one root. All matrices are symmetric and commute, so every product is symmetric.
class NewtonIteration {
  public:
    NewtonIteration(const Context& context, const NewtonRoot& operation)
        : context_(context), operation_(operation), n_(operation.factor.rows()) {
        const auto matrix = [&](std::int64_t index) {
            return operation.workspace.slice(0, index * n_ * n_, n_ * n_).reshape({n_, n_});
        };
        x_ = matrix(0);
        previous_x_ = matrix(1);
        y_ = matrix(2);
        step_ = matrix(3);
        power_ = matrix(4);
        spare_ = matrix(5);
        vector_ = data(operation_.workspace) + 6 * n_ * n_;
        image_ = vector_ + n_;
    }

    [[nodiscard]] TaskStatus run() {
        const TaskStatus status = scale();
        if (status != TaskStatus::done) return status;
        if (context_.solver_fault != SolverFault::none) return TaskStatus::failed;
        start();
        const double error = iterate();
        if (!(error <= kNewtonUseless)) return TaskStatus::failed;
        const auto back = static_cast<float>(std::pow(largest_ * operation_.factor_scale, -1.0 / p()));
        if (!std::isfinite(back)) return TaskStatus::failed;
        float* const root = data(operation_.root);
        const float* const x = data(x_);
        for_pieces(context_.threads, n_ * n_, kPieceElements, [=](std::int64_t begin, std::int64_t size) {
            for (std::int64_t i = begin; i < begin + size; ++i) root[i] = back * x[i];
        });
        return TaskStatus::done;
    }

  private:
    [[nodiscard]] float* data(const Tensor& tensor) const { return context_.data<float>(tensor); }
    [[nodiscard]] double p() const { return static_cast<double>(operation_.order); }

    /// Calls body(row) for every row, on any threads.
    template <class Body>
    void for_rows(const Body& body) const {
        const std::int64_t rows = std::max<std::int64_t>(1, kPieceElements / n_);
        for_pieces(context_.threads, n_, rows, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t row = first; row < first + count; ++row) body(row);
        });
    }
    void multiply(const Tensor& out, const Tensor& a, const Tensor& b) const {
        cpu::run(context_, SymmetricProduct{.out = out, .a = a, .b = b});
    }

    /// y = A / max|A|, symmetrised.
    [[nodiscard]] TaskStatus scale() {
        const float* const factor = data(operation_.factor);
        float* const y = data(y_);
        const std::int64_t n = n_;
        for_rows([=](std::int64_t row) {
            for (std::int64_t column = 0; column < n; ++column) {
                y[row * n + column] = 0.5F * factor[row * n + column] + 0.5F * factor[column * n + row];
            }
        });
        const float largest = largest_of_rows(y);
        if (!std::isfinite(largest)) return TaskStatus::not_finite;
        if (largest == 0.0F) return TaskStatus::zero;
        largest_ = static_cast<double>(largest);
        for_rows([=](std::int64_t row) {
            for (std::int64_t i = row * n; i < (row + 1) * n; ++i) y[i] /= largest;
        });
        return TaskStatus::done;
    }

    /// The largest size in a matrix.
    [[nodiscard]] float largest_of_rows(const float* values) const {
        float* const of_row = image_;
        const std::int64_t n = n_;
        for_rows([=](std::int64_t row) { of_row[row] = largest_size(values + row * n, n); });
        return largest_size(of_row, n);
    }

    /// The largest eigenvalue of y: the quotient of Rayleigh after power steps from a vector without symmetries.
    [[nodiscard]] double largest_eigenvalue() const {
        const float* const y = data(y_);
        float* const vector = vector_;
        float* const image = image_;
        const std::int64_t n = n_;
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

    /// A += e I; z = (p + 1) / (2 |A|); X = z^(1/p) I; Y = z A.
    void start() {
        const double unit = operation_.relative ? 1.0 : 1.0 / (largest_ * operation_.factor_scale);
        const double ridge = operation_.epsilon * (operation_.relative ? largest_eigenvalue() : unit);
        float* const y = data(y_);
        for (std::int64_t i = 0; i < n_; ++i) y[i * n_ + i] += static_cast<float>(ridge);
        const double z = (p() + 1.0) / (2.0 * std::sqrt(dot(y, y, n_ * n_)));
        const auto z_of_y = static_cast<float>(z), z_of_x = static_cast<float>(std::pow(z, 1.0 / p()));
        float* const x = data(x_);
        const std::int64_t n = n_;
        for_rows([=](std::int64_t row) {
            for (std::int64_t i = row * n; i < (row + 1) * n; ++i) y[i] *= z_of_y;
            std::fill_n(x + row * n, n, 0.0F);
            x[row * n + row] = z_of_x;
        });
    }

    /// max|Y - I|; infinity where Y is not finite.
    [[nodiscard]] double error() const {
        const float* const y = data(y_);
        float* const of_row = image_;
        const std::int64_t n = n_;
        for_rows([=](std::int64_t row) {
            const float* const values = y + row * n;
            const std::array<float, 3> parts{largest_size(values, row), values[row] - 1.0F,
                                             largest_size(values + row + 1, n - row - 1)};
            of_row[row] = largest_size(parts.data(), std::ssize(parts));
        });
        const float largest = largest_size(of_row, n);
        return std::isfinite(largest) ? static_cast<double>(largest) : HUGE_VAL;
    }

    /// Until the error is small or grows; gives the error of the X that is kept.
    [[nodiscard]] double iterate() {
        double last = error();
        for (int round = 0; round < kNewtonRounds && last >= kNewtonConverged; ++round) {
            one_round();
            const double now = error();
            if (!(now <= kNewtonGrowth * last)) {
                std::swap(x_, previous_x_);
                return last;
            }
            last = now;
        }
        return last;
    }

    /// N = ((p + 1) I - Y) / p; X = X N; Y = N^p Y.
    void one_round() {
        const float* const y = data(y_);
        float* const step = data(step_);
        const auto diagonal = static_cast<float>((p() + 1.0) / p()), factor = static_cast<float>(1.0 / p());
        const std::int64_t n = n_;
        for_rows([=](std::int64_t row) {
            for (std::int64_t i = row * n; i < (row + 1) * n; ++i) step[i] = -factor * y[i];
            step[row * n + row] += diagonal;
        });
        multiply(previous_x_, x_, step_);
        std::swap(x_, previous_x_);
        Tensor power = step_, target = power_;
        for (std::int64_t reached = 1; reached < operation_.order; reached *= 2) {
            multiply(target, power, power);
            std::swap(power, target);
        }
        multiply(spare_, power, y_);
        std::swap(spare_, y_);
    }

    const Context& context_;
    const NewtonRoot& operation_;
    std::int64_t n_;
    Tensor x_, previous_x_, y_, step_, power_, spare_;
    float* vector_;  // [n] each: of the power steps, and one value of every row
    float* image_;
    double largest_ = 0.0;
};

}  // namespace

void run(const Context& context, const NewtonRoot& operation) {
    const TaskStatus status = NewtonIteration(context, operation).run();
    *context.data<std::int64_t>(operation.status) = static_cast<std::int64_t>(status);
}

}  // namespace mfsdp::device::cpu
