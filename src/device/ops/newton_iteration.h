#pragma once

#include "mfsdp/device/ops/decomposition.h"

#include "device/ops/decomposition_workspace.h"

#include <cmath>
#include <cstdint>
#include <utility>

namespace mfsdp::device {

inline constexpr int kNewtonRounds = 100;         ///< of the iteration, at most
inline constexpr int kPowerSteps = 100;           ///< of the estimate of the largest eigenvalue
inline constexpr double kNewtonConverged = 1e-6;  ///< max|Y - I| that float32 still reaches
inline constexpr double kNewtonUseless = 0.1;     ///< max|Y - I| above which the result is no root
inline constexpr double kNewtonGrowth = 1.2;      ///< an error that grew by this factor only grows further

/// What the scaling of a factor found: `done`, or why there is nothing to iterate, and max|A|.
struct ScaledFactor {
    TaskStatus status = TaskStatus::done;
    float largest = 0.0F;
};

/// The coupled Newton iteration of one root. All matrices are symmetric and commute, so every product is symmetric.
///
/// `Primitives` are the backend's, on matrices [n, n] float32 dense:
///
///     ScaledFactor scale(y)               y = A / max|A|, symmetrised
///     double largest_eigenvalue(y)        the quotient of Rayleigh after kPowerSteps power steps
///     void add_ridge(y, ridge)            y += ridge I
///     double norm(y)                      of Frobenius
///     void start(y, x, z_of_y, z_of_x)    y = z_of_y y; x = z_of_x I
///     float error(y)                      max|y - I|; infinity or NaN where y is not finite
///     void write_step(step, y, d, f)      step = d I - f y
///     void multiply(out, a, b)
///     void write_root(x, back)            root = back x
template <class Primitives>
class NewtonIteration {
  public:
    NewtonIteration(const NewtonRoot& operation, const Primitives& primitives)
        : operation_(operation), primitives_(primitives), p_(static_cast<double>(operation.order)) {
        Tensor* const matrices[NewtonPieces::kMatrices] = {&x_, &previous_x_, &y_, &step_, &power_, &spare_};
        const std::int64_t n = operation.factor.rows();
        for (std::int64_t i = 0; i < NewtonPieces::kMatrices; ++i) {
            *matrices[i] = operation.workspace.slice(0, i * n * n, n * n).reshape({n, n});
        }
    }

    [[nodiscard]] TaskStatus run() {
        const ScaledFactor scaled = primitives_.scale(y_);
        if (scaled.status != TaskStatus::done) return scaled.status;
        const double size = static_cast<double>(scaled.largest) * operation_.factor_scale;
        start(size);
        const double error = iterate();
        if (!(error <= kNewtonUseless)) return TaskStatus::failed;
        const auto back = static_cast<float>(std::pow(size, -1.0 / p_));
        if (!std::isfinite(back)) return TaskStatus::failed;
        primitives_.write_root(x_, back);
        return TaskStatus::done;
    }

  private:
    /// A += e I; z = (p + 1) / (2 |A|); X = z^(1/p) I; Y = z A. size = max|A| before the scaling
    void start(double size) {
        const double unit = operation_.relative ? primitives_.largest_eigenvalue(y_) : 1.0 / size;
        primitives_.add_ridge(y_, static_cast<float>(operation_.epsilon * unit));
        const double z = (p_ + 1.0) / (2.0 * primitives_.norm(y_));
        primitives_.start(y_, x_, static_cast<float>(z), static_cast<float>(std::pow(z, 1.0 / p_)));
    }

    /// max|Y - I|; infinity where Y is not finite.
    [[nodiscard]] double error() const {
        const float largest = primitives_.error(y_);
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
        primitives_.write_step(step_, y_, static_cast<float>((p_ + 1.0) / p_), static_cast<float>(1.0 / p_));
        primitives_.multiply(previous_x_, x_, step_);
        std::swap(x_, previous_x_);
        Tensor power = step_, target = power_;
        for (std::int64_t reached = 1; reached < operation_.order; reached *= 2) {
            primitives_.multiply(target, power, power);
            std::swap(power, target);
        }
        primitives_.multiply(spare_, power, y_);
        std::swap(spare_, y_);
    }

    const NewtonRoot& operation_;
    const Primitives& primitives_;
    double p_;
    Tensor x_, previous_x_, y_, step_, power_, spare_;
};

}  // namespace mfsdp::device
