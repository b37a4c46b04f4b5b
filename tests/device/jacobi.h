#pragma once

// Eigenvalues and vectors of a symmetric matrix by cyclic Jacobi rotations in double: slow, simple, and nothing of a
// library in it.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace mfsdp::device::reference {

/// vectors [n, n] row-major, column j belongs to values[j]; largest value first.
struct SymmetricEigen {
    std::vector<double> values, vectors;
};

inline SymmetricEigen jacobi(std::vector<double> a, std::size_t n) {
    std::vector<double> v(n * n, 0.0);
    for (std::size_t i = 0; i < n; ++i) v[i * n + i] = 1.0;
    for (int sweep = 0; sweep < 60; ++sweep) {
        double off = 0.0, all = 0.0;
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j < n; ++j) {
                all += a[i * n + j] * a[i * n + j];
                if (i != j) off += a[i * n + j] * a[i * n + j];
            }
        }
        if (off <= 1e-30 * all) break;
        for (std::size_t p = 0; p < n; ++p) {
            for (std::size_t q = p + 1; q < n; ++q) {
                if (a[p * n + q] == 0.0) continue;
                const double theta = (a[q * n + q] - a[p * n + p]) / (2.0 * a[p * n + q]);
                const double t = (theta >= 0.0 ? 1.0 : -1.0) / (std::abs(theta) + std::sqrt(theta * theta + 1.0));
                const double c = 1.0 / std::sqrt(t * t + 1.0), s = t * c;
                for (std::size_t k = 0; k < n; ++k) {
                    const double x = a[k * n + p], y = a[k * n + q];
                    a[k * n + p] = c * x - s * y;
                    a[k * n + q] = s * x + c * y;
                }
                for (std::size_t k = 0; k < n; ++k) {
                    const double x = a[p * n + k], y = a[q * n + k];
                    a[p * n + k] = c * x - s * y;
                    a[q * n + k] = s * x + c * y;
                }
                for (std::size_t k = 0; k < n; ++k) {
                    const double x = v[k * n + p], y = v[k * n + q];
                    v[k * n + p] = c * x - s * y;
                    v[k * n + q] = s * x + c * y;
                }
            }
        }
    }
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return a[i * n + i] > a[j * n + j]; });
    SymmetricEigen result{std::vector<double>(n), std::vector<double>(n * n)};
    for (std::size_t j = 0; j < n; ++j) {
        result.values[j] = a[order[j] * n + order[j]];
        for (std::size_t i = 0; i < n; ++i) result.vectors[i * n + j] = v[i * n + order[j]];
    }
    return result;
}

/// (A + e I)^(-1/order), negative eigenvalues taken as 0; e = epsilon times the largest eigenvalue if `relative`.
inline std::vector<double> inverse_root(const std::vector<double>& a, std::size_t n, double order, double epsilon,
                                        bool relative) {
    const SymmetricEigen eigen = jacobi(a, n);
    const double e = relative ? epsilon * eigen.values.front() : epsilon;
    std::vector<double> root(n * n, 0.0);
    for (std::size_t k = 0; k < n; ++k) {
        const double f = std::pow(std::max(eigen.values[k], 0.0) + e, -1.0 / order);
        for (std::size_t i = 0; i < n; ++i) {
            for (std::size_t j = 0; j < n; ++j) {
                root[i * n + j] += f * eigen.vectors[i * n + k] * eigen.vectors[j * n + k];
            }
        }
    }
    return root;
}

}  // namespace mfsdp::device::reference
