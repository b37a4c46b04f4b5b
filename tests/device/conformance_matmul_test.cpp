#include "mfsdp/device/ops/matmul.h"

#include "device/conformance.h"
#include "device/reference.h"

#include <algorithm>

namespace mfsdp::device::conformance {

namespace {

using Size = std::size_t;

/// One product; batch = 0 is the two-dimensional form.
struct Product {
    std::int64_t batch, m, n, k;
    bool transpose_a = false, transpose_b = false;
    float alpha = 1.0F, beta = 0.0F;
    bool bias = false;
    DType factors = DType::float32, out = DType::float32, bias_type = DType::float32;

    [[nodiscard]] std::string text() const {
        return sizes({{"batch", batch}, {"m", m}, {"n", n}, {"k", k}}) + (transpose_a ? " At" : "") +
               (transpose_b ? " Bt" : "") + " alpha=" + std::to_string(alpha) + " beta=" + std::to_string(beta) +
               (bias ? " bias" : "") + suffix({factors, out, bias_type});
    }
    [[nodiscard]] Shape shape(std::int64_t rows, std::int64_t columns) const {
        return batch == 0 ? Shape{rows, columns} : Shape{batch, rows, columns};
    }
};

void multiply(const Product& product, Values& v) {
    const auto m = static_cast<Size>(product.m), n = static_cast<Size>(product.n), k = static_cast<Size>(product.k);
    for (Size i = 0; i < v[3].size(); ++i) {
        const Size batch = i / (m * n), row = i / n % m, column = i % n;
        double sum = 0.0;
        for (Size t = 0; t < k; ++t) {
            const double a = v[0][batch * m * k + (product.transpose_a ? t * m + row : row * k + t)];
            const double b = v[1][batch * k * n + (product.transpose_b ? column * k + t : t * n + column)];
            sum += a * b;
        }
        const double before = product.beta == 0.0F ? 0.0 : static_cast<double>(product.beta) * v[3][i];
        v[3][i] = before + static_cast<double>(product.alpha) * sum + (product.bias ? v[2][column] : 0.0);
    }
}

Row product_row(const Product& product) {
    const Shape a = product.transpose_a ? product.shape(product.k, product.m) : product.shape(product.m, product.k);
    const Shape b = product.transpose_b ? product.shape(product.n, product.k) : product.shape(product.k, product.n);
    const Shape out = product.shape(product.m, product.n);
    return row<Matmul>(
        product.text(),
        {input("a", a, normal(), Gaps::allowed, product.factors),
         input("b", b, normal(), Gaps::allowed, product.factors),
         input("bias", {product.bias ? product.n : 0}, normal(), Gaps::forbidden, product.bias_type),
         product.beta == 0.0F ? output("out", out, Gaps::allowed, product.out)
                              : in_out("out", out, normal(), Gaps::allowed, product.out)},
        [product](Tensors t) {
            return Matmul{t[3],
                          t[0],
                          t[1],
                          product.transpose_a,
                          product.transpose_b,
                          product.alpha,
                          product.beta,
                          product.bias ? t[2] : Tensor{}};
        },
        [product](Values& v) { multiply(product, v); }, Tolerance{.of_largest = 2e-6});
}

/// The same product with GELU of it beside it.
///
/// Of bfloat16 values a backend may take GELU before or after they are rounded, and a library's tanh may be as rough as
/// they are: 2^-9 of a value for the rounding, times a slope of up to 1.13, and half of a tanh wrong by 2^-11 are less
/// than 2.5e-3 of the largest.
Row gelu_row(Product product) {
    product.alpha = 0.25F;  // most arguments lie where GELU is curved
    Row plain = product_row(product);
    ArgumentOfRow gelu = output("gelu", product.shape(product.m, product.n), Gaps::allowed, product.out);
    gelu.tolerance = Tolerance{.of_largest = product.out == DType::float32 ? 4e-6 : 2.5e-3};
    plain.arguments.push_back(gelu);
    return row<Matmul>(
        product.text() + " gelu", plain.arguments,
        [product](Tensors t) {
            return Matmul{.out = t[3],
                          .a = t[0],
                          .b = t[1],
                          .transpose_a = product.transpose_a,
                          .transpose_b = product.transpose_b,
                          .alpha = product.alpha,
                          .bias = product.bias ? t[2] : Tensor{},
                          .gelu = t[4]};
        },
        [product](Values& v) {
            multiply(product, v);
            std::transform(v[3].begin(), v[3].end(), v[4].begin(), reference::gelu);
        },
        plain.tolerance);
}

/// Rows of a multiple of eight elements are what cuBLASLt takes; the emulated one takes no sums of 1024 and more.
void add_gelu_rows(std::vector<Row>& rows, DType type) {
    for (const bool bias : {false, true}) {
        const auto add = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_b, DType bias_type) {
            rows.push_back(gelu_row({0, m, n, k, false, transpose_b, 1.0F, 0.0F, bias, type, type, bias_type}));
        };
        add(19, 24, 29, true, type);
        add(1, 8, 16, true, type);
        add(33, 136, 40, false, type);
        add(19, 23, 29, true, type);
        add(4, 1, 3, true, type);
        add(5, 16, 1100, true, type);
        if (bias) add(7, 16, 0, true, type);
        if (bias && type != DType::float32) add(19, 24, 29, true, DType::float32);
    }
    rows.push_back(gelu_row({0, 24, 16, 9, true, false, 1.0F, 0.0F, true, type, type, type}));
}

/// What layers and optimizers ask for, with sums over more than one block of our own kernel.
void add_rows_of_types(std::vector<Row>& rows, DType factors, DType out) {
    for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
            rows.push_back(product_row({0, 17, 33, 600, transpose_a, transpose_b, 1.0F, 0.0F, false, factors, out}));
        }
    }
    rows.push_back(product_row({0, 19, 23, 29, false, true, 1.0F, 0.0F, true, factors, out}));
    rows.push_back(product_row({0, 19, 23, 29, false, true, 1.0F, 0.0F, true, factors, out, DType::bfloat16}));
    rows.push_back(product_row({0, 19, 23, 300, true, false, -2.0F, 0.25F, true, factors, out}));
    rows.push_back(product_row({3, 9, 10, 11, false, true, 0.5F, 1.0F, false, factors, out}));
    rows.push_back(product_row({0, 4, 3, 0, false, false, 1.0F, 0.5F, true, factors, out}));
}

}  // namespace

std::vector<Row> matmul_rows() {
    std::vector<Row> rows;
    for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
            for (const Product& size : {Product{0, 1, 1, 1}, Product{0, 3, 5, 7}, Product{0, 17, 33, 65},
                                        Product{0, 64, 48, 300}, Product{3, 9, 10, 11}}) {
                Product product = size;
                product.transpose_a = transpose_a;
                product.transpose_b = transpose_b;
                rows.push_back(product_row(product));
            }
        }
    }
    rows.push_back(product_row({0, 19, 23, 29, false, true, 0.5F, 1.0F, true}));
    rows.push_back(product_row({0, 19, 23, 29, true, false, -2.0F, 0.25F, false}));
    rows.push_back(product_row({2, 5, 6, 7, false, false, 1.0F, 1.0F, false}));
    rows.push_back(product_row({0, 40, 8, 5, false, true, 1.0F, 0.0F, true}));
    rows.push_back(product_row({0, 16, 16, 4096, true, false}));  // a weight gradient: small sides, a long sum
    rows.push_back(product_row({0, 4, 3, 0, false, false, 1.0F, 0.5F, true}));  // no terms: beta out + bias
    rows.push_back(allow_empty(product_row({0, 0, 3, 4})));
    for (const DType factors : {DType::float32, DType::bfloat16, DType::float16}) {
        for (const DType out : {DType::float32, DType::bfloat16, DType::float16}) {
            if (factors == DType::float32 && out == DType::float32) continue;
            add_rows_of_types(rows, factors, out);
        }
    }
    rows.push_back(
        product_row({0, 19, 23, 29, false, true, 1.0F, 0.0F, true, DType::float32, DType::float32, DType::bfloat16}));
    add_gelu_rows(rows, DType::float32);
    add_gelu_rows(rows, DType::bfloat16);
    rows.push_back(gelu_row({0, 19, 24, 29, false, true, 1.0F, 0.0F, true, DType::bfloat16, DType::float32}));
    rows.push_back(gelu_row({0, 19, 24, 29, false, true, 1.0F, 0.0F, true, DType::float32, DType::bfloat16}));
    rows.push_back(allow_empty(gelu_row({0, 0, 8, 4})));
    return rows;
}

}  // namespace mfsdp::device::conformance
