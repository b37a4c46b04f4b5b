#include "mfsdp/device/ops/decomposition.h"
#include "mfsdp/device/ops/symmetric.h"

#include "device/cpu/kernels.h"
#include "device/cpu/pieces.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace mfsdp::device::cpu {

namespace {

constexpr int kRounds = 100;
constexpr int kPowerSteps = 100;
constexpr double kConverged = 1e-6;
constexpr double kUseless = 0.1;
constexpr double kGrowth = 1.2;

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
    }

    [[nodiscard]] TaskStatus run() {
        const TaskStatus status = scale();
        if (status != TaskStatus::done) return status;
        if (context_.solver_fault != SolverFault::none) return TaskStatus::failed;
        start();
        const double error = iterate();
        if (!(error <= kUseless)) return TaskStatus::failed;
        const auto back = static_cast<float>(std::pow(largest_ * operation_.factor_scale, -1.0 / p()));
        if (!std::isfinite(back)) return TaskStatus::failed;
        float* const root = data(operation_.root);
        for_each([this, root, back](std::int64_t i) { root[i] = back * data(x_)[i]; });
        return TaskStatus::done;
    }

  private:
    [[nodiscard]] float* data(const Tensor& tensor) const { return context_.data<float>(tensor); }
    [[nodiscard]] double p() const { return static_cast<double>(operation_.order); }

    template <class Body>
    void for_each(const Body& body) const {
        for_pieces(context_.threads, n_ * n_, kPieceElements, [&](std::int64_t begin, std::int64_t size) {
            for (std::int64_t i = begin; i < begin + size; ++i) body(i);
        });
    }
    void multiply(const Tensor& out, const Tensor& a, const Tensor& b) const {
        cpu::run(context_, SymmetricProduct{.out = out, .a = a, .b = b});
    }

    /// y = A / max|A|, symmetrised.
    [[nodiscard]] TaskStatus scale() {
        const float* const factor = data(operation_.factor);
        float* const y = data(y_);
        bool finite = true;
        float largest = 0.0F;
        for (std::int64_t row = 0; row < n_; ++row) {
            for (std::int64_t column = 0; column < n_; ++column) {
                const float value = 0.5F * factor[row * n_ + column] + 0.5F * factor[column * n_ + row];
                y[row * n_ + column] = value;
                finite = finite && std::isfinite(value);
                largest = std::max(largest, std::abs(value));
            }
        }
        if (!finite) return TaskStatus::not_finite;
        if (largest == 0.0F) return TaskStatus::zero;
        largest_ = static_cast<double>(largest);
        for_each([=](std::int64_t i) { y[i] /= largest; });
        return TaskStatus::done;
    }

    /// The largest eigenvalue of y: the quotient of Rayleigh after power steps from a vector without symmetries.
    [[nodiscard]] double largest_eigenvalue() const {
        const float* const y = data(y_);
        auto* const vector = reinterpret_cast<float*>(data(operation_.workspace) + 6 * n_ * n_);
        float* const image = vector + n_;
        for (std::int64_t i = 0; i < n_; ++i) vector[i] = 1.0F + 0.5F * std::sin(static_cast<float>(i % 1024));
        double quotient = 0.0;
        for (int round = 0; round < kPowerSteps; ++round) {
            double along = 0.0, length = 0.0, next_length = 0.0;
            for (std::int64_t row = 0; row < n_; ++row) {
                double sum = 0.0;
                for (std::int64_t column = 0; column < n_; ++column) {
                    sum += static_cast<double>(y[row * n_ + column]) * static_cast<double>(vector[column]);
                }
                const auto x = static_cast<double>(vector[row]);
                along += x * sum;
                length += x * x;
                next_length += sum * sum;
                image[row] = static_cast<float>(sum);
            }
            if (length == 0.0 || next_length == 0.0) return quotient;
            quotient = along / length;
            for (std::int64_t i = 0; i < n_; ++i) {
                vector[i] = static_cast<float>(static_cast<double>(image[i]) / std::sqrt(next_length));
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
        double squares = 0.0;
        for (std::int64_t i = 0; i < n_ * n_; ++i) squares += static_cast<double>(y[i]) * static_cast<double>(y[i]);
        const double z = (p() + 1.0) / (2.0 * std::sqrt(squares));
        const auto z_of_y = static_cast<float>(z), z_of_x = static_cast<float>(std::pow(z, 1.0 / p()));
        float* const x = data(x_);
        const std::int64_t n = n_;
        for_each([=](std::int64_t i) {
            y[i] *= z_of_y;
            x[i] = i / n == i % n ? z_of_x : 0.0F;
        });
    }

    /// max|Y - I|; infinity where Y is not finite.
    [[nodiscard]] double error() const {
        const float* const y = data(y_);
        double largest = 0.0;
        for (std::int64_t i = 0; i < n_ * n_; ++i) {
            const double distance = std::abs(static_cast<double>(y[i]) - (i / n_ == i % n_ ? 1.0 : 0.0));
            if (!std::isfinite(distance)) return HUGE_VAL;
            largest = std::max(largest, distance);
        }
        return largest;
    }

    /// Until the error is small or grows; gives the error of the X that is kept.
    [[nodiscard]] double iterate() {
        double last = error();
        for (int round = 0; round < kRounds && last >= kConverged; ++round) {
            one_round();
            const double now = error();
            if (!(now <= kGrowth * last)) {
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
        for_each([=](std::int64_t i) { step[i] = (i / n == i % n ? diagonal : 0.0F) - factor * y[i]; });
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
    double largest_ = 0.0;
};

}  // namespace

void run(const Context& context, const NewtonRoot& operation) {
    const TaskStatus status = NewtonIteration(context, operation).run();
    *context.data<std::int64_t>(operation.status) = static_cast<std::int64_t>(status);
}

}  // namespace mfsdp::device::cpu
