#include "mfsdp/device/ops/symmetric.h"

#include "device/conformance.h"

#include <array>

namespace mfsdp::device::conformance {

namespace {

using Size = std::size_t;

constexpr std::array kFloats{DType::float32, DType::bfloat16, DType::float16};

struct ProductShape {
    std::int64_t batch, n, k;
};

/// Element (row, column) of op(matrix) of a batch.
double element(const std::vector<double>& values, const ProductShape& s, bool transpose, Size which, Size row,
               Size column) {
    const auto n = static_cast<Size>(s.n), k = static_cast<Size>(s.k);
    return transpose ? values[(which * k + column) * n + row] : values[(which * n + row) * k + column];
}

/// A symmetric value for the element (row, column) of `out`.
Filling symmetric(std::int64_t n) {
    return [n](std::int64_t index, Random&) {
        const std::int64_t row = index / n % n, column = index % n;
        return static_cast<double>((row + column) % 7 - 3) + static_cast<double>(row * column % 5);
    };
}

void add_product_row(std::vector<Row>& rows, const ProductShape& s, bool transpose, float alpha, float beta,
                     DType factors = DType::float32, DType result_type = DType::float32) {
    Shape out{s.n, s.n}, in = transpose ? Shape{s.k, s.n} : Shape{s.n, s.k};
    if (s.batch > 0) {
        out.insert(out.begin(), s.batch);
        in.insert(in.begin(), s.batch);
    }
    const std::string text = sizes({{"batch", s.batch}, {"n", s.n}, {"k", s.k}}) + (transpose ? " transposed" : "") +
                             " alpha " + std::to_string(alpha) + " beta " + std::to_string(beta) +
                             suffix({factors, result_type});
    const ArgumentOfRow result = beta == 0.0F ? output("out", out, Gaps::allowed, result_type)
                                              : in_out("out", out, symmetric(s.n), Gaps::allowed, result_type);
    rows.push_back(row<SymmetricProduct>(
        text, {result, input("a", in, normal(), Gaps::allowed, factors)},
        [=](Tensors t) {
            return SymmetricProduct{.out = t[0], .a = t[1], .transpose = transpose, .alpha = alpha, .beta = beta};
        },
        [=](Values& v) {
            const auto n = static_cast<Size>(s.n);
            for (Size which = 0; which < static_cast<Size>(std::max<std::int64_t>(1, s.batch)); ++which) {
                for (Size i = 0; i < n; ++i) {
                    for (Size j = 0; j < n; ++j) {
                        double sum = 0.0;
                        for (Size p = 0; p < static_cast<Size>(s.k); ++p) {
                            sum += element(v[1], s, transpose, which, i, p) * element(v[1], s, transpose, which, j, p);
                        }
                        double& c = v[0][(which * n + i) * n + j];
                        c = static_cast<double>(alpha) * sum + (beta == 0.0F ? 0.0 : static_cast<double>(beta) * c);
                    }
                }
            }
        },
        Tolerance{.of_largest = 2e-6}));
}

/// Two diagonal matrices, which commute; off the diagonal the product is exactly 0.
void add_commuting_row(std::vector<Row>& rows, std::int64_t n) {
    const Filling diagonal = [n](std::int64_t index, Random& random) {
        const double value = 1.0 + static_cast<double>(random() % 64) / 16.0;
        return index / n == index % n ? value : 0.0;
    };
    rows.push_back(row<SymmetricProduct>(
        sizes({{"n", n}}) + " of two matrices",
        {output("out", {n, n}), input("a", {n, n}, diagonal), input("b", {n, n}, diagonal)},
        [](Tensors t) { return SymmetricProduct{.out = t[0], .a = t[1], .b = t[2]}; },
        [](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) v[0][i] = v[1][i] * v[2][i];
        },
        Tolerance{.of_value = 1e-7}));
}

void add_identity_row(std::vector<Row>& rows, std::int64_t n) {
    rows.push_back(row<FillIdentity>(
        sizes({{"n", n}}), {output("out", {n, n})}, [](Tensors t) { return FillIdentity{t[0]}; },
        [n](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) {
                v[0][i] = i / static_cast<Size>(n) == i % static_cast<Size>(n) ? 1.0 : 0.0;
            }
        },
        Tolerance{}));
}

void add_diagonal_row(std::vector<Row>& rows, std::int64_t n, DType dtype) {
    rows.push_back(row<AddToDiagonal>(
        sizes({{"n", n}}) + suffix({dtype}), {in_out("out", {n, n}, normal(), Gaps::allowed, dtype)},
        [](Tensors t) {
            return AddToDiagonal{t[0], 2.5F};
        },
        [n](Values& v) {
            for (Size i = 0; i < static_cast<Size>(n); ++i) v[0][i * static_cast<Size>(n) + i] += 2.5;
        },
        Tolerance{.of_value = 1e-7, .of_largest = 1e-7}));
}

}  // namespace

std::vector<Row> symmetric_rows() {
    std::vector<Row> rows;
    for (const std::int64_t n : {1, 7, 130}) {
        add_identity_row(rows, n);
        for (const DType dtype : kFloats) add_diagonal_row(rows, n, dtype);
    }
    for (const bool transpose : {false, true}) {
        for (const ProductShape& s :
             {ProductShape{0, 1, 1}, ProductShape{0, 7, 3}, ProductShape{0, 64, 100}, ProductShape{0, 130, 33},
              ProductShape{3, 5, 8}, ProductShape{2, 70, 9}, ProductShape{0, 389, 40}, ProductShape{0, 210, 300}}) {
            add_product_row(rows, s, transpose, 1.0F, 0.0F);
        }
        add_product_row(rows, {0, 66, 20}, transpose, 0.05F, 0.95F);
        add_product_row(rows, {2, 197, 20}, transpose, -1.5F, 1.0F);
    }
    add_product_row(rows, {0, 9, 0}, false, 1.0F, 0.5F);
    add_product_row(rows, {0, 9, 4}, false, 0.0F, 0.5F);
    for (const DType factors : kFloats) {
        for (const DType out : kFloats) {
            if (factors == DType::float32 && out == DType::float32) continue;
            add_product_row(rows, {0, 7, 3}, false, 1.0F, 0.0F, factors, out);
            add_product_row(rows, {2, 197, 20}, true, -1.5F, 0.5F, factors, out);
            add_product_row(rows, {0, 210, 300}, false, 1.0F, 0.0F, factors, out);
        }
    }
    add_commuting_row(rows, 5);
    add_commuting_row(rows, 200);
    return rows;
}

}  // namespace mfsdp::device::conformance
