#pragma once

#include "mfsdp/optim/muon.h"

#include "optim/bench.h"

#include <cmath>
#include <vector>

namespace mfsdp::optim::test {

// Two second sources for Newton-Schulz: the scalar polynomial on singular values, and the matrix iteration as a plain
// loop in double precision. Neither shares code with the library, tables included.

/// Coefficient rows as the design gives them, typed in a second time.
inline std::array<double, 3> reference_row(CoefficientType type, std::int64_t k) {
    const std::array<double, 3> keller{3.4445, -4.7750, 2.0315};
    switch (type) {
        case CoefficientType::simple:
            return keller;
        case CoefficientType::dsv4:
            return k < 8 ? keller : std::array<double, 3>{2.0, -1.5, 0.5};
        case CoefficientType::quintic: {
            const double rows[5][3] = {{4.0848, -6.8946, 2.9270},
                                       {3.9505, -6.3029, 2.6377},
                                       {3.7418, -5.5913, 2.3037},
                                       {2.8769, -3.1427, 1.2046},
                                       {2.8366, -3.0525, 1.2012}};
            const double* row = rows[std::min<std::int64_t>(k, 4)];
            return {row[0], row[1], row[2]};
        }
        case CoefficientType::polar_express:
            break;
    }
    const double rows[8][3] = {{8.28721201814563, -23.595886519098837, 17.300387312530933},
                               {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                               {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                               {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                               {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
                               {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
                               {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
                               {1.875, -1.25, 0.375}};
    const double* row = rows[std::min<std::int64_t>(k, 7)];
    const double safety = k < 7 ? 1.05 : 1.0;
    return {row[0] / safety, row[1] / std::pow(safety, 3), row[2] / std::pow(safety, 5)};
}

/// f(x): what `steps` steps do to a singular value.
inline double composite(CoefficientType type, std::int64_t steps, double x) {
    for (std::int64_t k = 0; k < steps; ++k) {
        const auto [a, b, c] = reference_row(type, k);
        x = a * x + b * x * x * x + c * x * x * x * x * x;
    }
    return x;
}

inline Exact product(const Exact& a, const Exact& b) {
    Exact result(a.rows, b.columns);
    for (std::int64_t i = 0; i < a.rows; ++i) {
        for (std::int64_t k = 0; k < a.columns; ++k) {
            for (std::int64_t j = 0; j < b.columns; ++j) result.at(i, j) += a.at(i, k) * b.at(k, j);
        }
    }
    return result;
}

inline double frobenius(const Exact& matrix) {
    double largest = 0.0, sum = 0.0;
    for (const double value : matrix.values) largest = std::max(largest, std::abs(value));
    if (largest == 0.0) return 0.0;
    for (const double value : matrix.values) sum += value / largest * (value / largest);
    return largest * std::sqrt(sum);
}

/// Newton-Schulz in double, without the turn to the wide orientation.
inline Exact newton_schulz_loop(const Exact& in, CoefficientType type, std::int64_t steps) {
    const double norm = frobenius(in);
    if (norm == 0.0) return in;
    Exact x = scaled(in, 1.0 / norm);
    for (std::int64_t k = 0; k < steps; ++k) {
        const auto [a, b, c] = reference_row(type, k);
        const Exact gram = product(x, transposed(x));
        const Exact square = product(gram, gram);
        Exact polynomial(gram.rows, gram.columns);
        for (std::size_t i = 0; i < gram.values.size(); ++i) {
            polynomial.values[i] = b * gram.values[i] + c * square.values[i];
        }
        const Exact step = product(polynomial, x);
        for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = a * x.values[i] + step.values[i];
    }
    return x;
}

/// `count` orthonormal columns of length `length` (Gram-Schmidt, twice).
inline Exact orthonormal(std::int64_t length, std::int64_t count, std::uint64_t seed) {
    Exact q = gaussian(length, count, seed);
    for (std::int64_t j = 0; j < count; ++j) {
        for (int pass = 0; pass < 2; ++pass) {
            for (std::int64_t i = 0; i < j; ++i) {
                double dot = 0.0;
                for (std::int64_t r = 0; r < length; ++r) dot += q.at(r, i) * q.at(r, j);
                for (std::int64_t r = 0; r < length; ++r) q.at(r, j) -= dot * q.at(r, i);
            }
        }
        double norm = 0.0;
        for (std::int64_t r = 0; r < length; ++r) norm += q.at(r, j) * q.at(r, j);
        for (std::int64_t r = 0; r < length; ++r) q.at(r, j) /= std::sqrt(norm);
    }
    return q;
}

/// left diag(values) right^T.
inline Exact compose(const Exact& left, const std::vector<double>& values, const Exact& right) {
    Exact result(left.rows, right.rows);
    for (std::int64_t i = 0; i < left.rows; ++i) {
        for (std::int64_t k = 0; k < left.columns; ++k) {
            for (std::int64_t j = 0; j < right.rows; ++j) {
                result.at(i, j) += left.at(i, k) * values[static_cast<std::size_t>(k)] * right.at(j, k);
            }
        }
    }
    return result;
}

inline constexpr std::array<CoefficientType, 4> kTables{CoefficientType::quintic, CoefficientType::simple,
                                                        CoefficientType::polar_express, CoefficientType::dsv4};

}  // namespace mfsdp::optim::test
