#pragma once

#include "mfsdp/optim/soap.h"

#include "device/jacobi.h"
#include "optim/optimizer_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace mfsdp::optim::test {

inline Exact identity(std::int64_t n) {
    Exact result(n, n);
    for (std::int64_t i = 0; i < n; ++i) result.at(i, i) = 1.0;
    return result;
}

/// Eigenvectors as columns, largest eigenvalue first; the identity for a zero matrix.
inline Exact eigenbasis(const Exact& factor) {
    const bool zero = std::all_of(factor.values.begin(), factor.values.end(), [](double x) { return x == 0.0; });
    if (zero) return identity(factor.rows);
    Exact result(factor.rows, factor.rows);
    result.values = device::reference::jacobi(factor.values, static_cast<std::size_t>(factor.rows)).vectors;
    return result;
}

/// One side of a matrix: its factor, its basis, and what a refresh does to both moments.
struct SoapReferenceSide {
    Exact factor, basis;
    std::vector<std::int64_t> order;

    explicit SoapReferenceSide(std::int64_t n) : factor(n, n), basis(identity(n)) {}

    void take_in(const Exact& outer, double beta) {
        for (std::size_t i = 0; i < factor.values.size(); ++i) {
            factor.values[i] = beta * factor.values[i] + (1.0 - beta) * outer.values[i];
        }
    }

    /// The new basis: Gram-Schmidt, twice, on the columns of A Q in falling order of their energy.
    void renew() {
        const std::int64_t n = factor.rows;
        const Exact t = product(factor, basis);
        std::vector<double> energy(static_cast<std::size_t>(n), 0.0);
        for (std::int64_t j = 0; j < n; ++j) {
            for (std::int64_t i = 0; i < n; ++i) energy[static_cast<std::size_t>(j)] += basis.at(i, j) * t.at(i, j);
        }
        order.resize(static_cast<std::size_t>(n));
        std::iota(order.begin(), order.end(), std::int64_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
            return energy[static_cast<std::size_t>(a)] > energy[static_cast<std::size_t>(b)];
        });
        Exact q(n, n);
        for (std::int64_t j = 0; j < n; ++j) {
            std::vector<double> column(static_cast<std::size_t>(n));
            for (std::int64_t i = 0; i < n; ++i) {
                column[static_cast<std::size_t>(i)] = t.at(i, order[static_cast<std::size_t>(j)]);
            }
            for (int pass = 0; pass < 2; ++pass) {
                for (std::int64_t k = 0; k < j; ++k) {
                    double along = 0.0;
                    for (std::int64_t i = 0; i < n; ++i) along += q.at(i, k) * column[static_cast<std::size_t>(i)];
                    for (std::int64_t i = 0; i < n; ++i) column[static_cast<std::size_t>(i)] -= along * q.at(i, k);
                }
            }
            const double size = std::sqrt(std::inner_product(column.begin(), column.end(), column.begin(), 0.0));
            for (std::int64_t i = 0; i < n; ++i) q.at(i, j) = column[static_cast<std::size_t>(i)] / size;
        }
        basis = q;
    }
};

/// SOAP of docs/optimizers.md for one block, as a loop in double that shares nothing with the library.
struct SoapReference {
    SoapOptions options;
    std::int64_t number = 0;
    bool has_left, has_right;
    SoapReferenceSide left, right;
    Exact momentum, square;  // in the eigenbasis

    SoapReference(const SoapOptions& o, std::int64_t rows, std::int64_t columns)
        : options(o),
          has_left((!o.one_sided || rows <= columns) && rows <= o.max_preconditioner_dim),
          has_right((!o.one_sided || columns < rows) && columns <= o.max_preconditioner_dim),
          left(rows),
          right(columns),
          momentum(rows, columns),
          square(rows, columns) {}

    [[nodiscard]] Exact into(const Exact& x) const { return product(product(transposed(left.basis), x), right.basis); }
    [[nodiscard]] Exact out_of(const Exact& x) const {
        return product(product(left.basis, x), transposed(right.basis));
    }
    void take_in(const Exact& g) {
        const double beta = options.shampoo_beta.value_or(options.beta2);
        if (has_left) left.take_in(product(g, transposed(g)), beta);
        if (has_right) right.take_in(product(transposed(g), g), beta);
    }

    void step(std::int64_t step, const Exact& g, double lr, double wd, Exact& weight) {
        const std::int64_t t = options.skip_first_step ? step - 1 : step;
        if (step == 1) {
            take_in(g);
            if (has_left) left.basis = eigenbasis(left.factor);
            if (has_right) right.basis = eigenbasis(right.factor);
            if (options.skip_first_step) return;
        }
        const Exact rotated = into(g);
        Exact u = rotated;
        const double c1 = options.bias_correction ? 1.0 - std::pow(options.beta1, static_cast<double>(t)) : 1.0;
        const double c2 = options.bias_correction ? 1.0 - std::pow(options.beta2, static_cast<double>(t)) : 1.0;
        const bool corrected = options.epsilon_mode == BiasEpsilon::corrected;
        for (std::size_t i = 0; i < u.values.size(); ++i) {
            double& m = momentum.values[i];
            double& v = square.values[i];
            m = options.beta1 * m + (1.0 - options.beta1) * rotated.values[i];
            v = options.beta2 * v + (1.0 - options.beta2) * rotated.values[i] * rotated.values[i];
            u.values[i] =
                corrected ? m / c1 / (std::sqrt(v / c2) + options.epsilon) : m / (std::sqrt(v) + options.epsilon);
        }
        u = out_of(u);
        if (options.normalize_update) {
            const double rms = std::sqrt(inner(u, u) / static_cast<double>(u.values.size()));
            if (rms > 0.0) u = scaled(u, 1.0 / rms);
        }
        const double rate = corrected ? lr : lr * std::sqrt(c2) / c1;
        const bool before = options.decay_order == DecayOrder::before;
        for (std::size_t i = 0; i < weight.values.size(); ++i) {
            double& w = weight.values[i];
            if (before) w *= 1.0 - lr * wd;
            w -= rate * u.values[i];
            if (!before) w -= lr * wd * w;
        }
        if (step == 1) return;
        take_in(g);
        const std::int64_t shift = options.stagger_refresh ? number : 0;
        if ((t + shift) % options.precondition_frequency != 0) return;
        const Exact in_parameter_basis = out_of(momentum);
        const Exact before_order = square;
        if (has_left) left.renew();
        if (has_right) right.renew();
        for (std::int64_t i = 0; i < square.rows; ++i) {
            for (std::int64_t j = 0; j < square.columns; ++j) {
                square.at(i, j) = before_order.at(has_left ? left.order[static_cast<std::size_t>(i)] : i,
                                                  has_right ? right.order[static_cast<std::size_t>(j)] : j);
            }
        }
        momentum = into(in_parameter_basis);
    }
};

/// What the tests start from, and the gradient of a step.
inline const Matrix kSoapWeight = convert<float>(gaussian(12, 11, 20));
inline Matrix soap_gradient(std::int64_t t) {
    return convert<float>(gaussian(12, 11, 40 + static_cast<std::uint64_t>(t)));
}

}  // namespace mfsdp::optim::test
