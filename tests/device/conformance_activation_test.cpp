#include "mfsdp/device/ops/activation.h"

#include "device/conformance.h"
#include "device/reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mfsdp::device::conformance {

namespace {

using reference::Size;

/// Products of a few rounded factors; sigmoids of arguments up to about 8 lose some more units to their exponent.
constexpr Tolerance kElementwise{.of_value = 4e-6, .of_largest = 1e-7};

double gelu_slope(double x) {
    const double factor = std::sqrt(2.0 / std::numbers::pi);
    const double tanh = std::tanh(factor * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * factor * (1.0 + 3.0 * 0.044715 * x * x);
}

double silu_slope(double x) {
    const double s = 1.0 / (1.0 + std::exp(-x));
    return s + x * s * (1.0 - s);
}

void add_gelu_rows(std::vector<Row>& rows, std::int64_t n, const std::string& kind, const Filling& filling,
                   DType type = DType::float32) {
    const std::string text = sizes({{"n", n}}) + " " + kind + suffix({type});
    constexpr Gaps kDense = Gaps::forbidden;
    rows.push_back(row<GeluForward>(
        text, {input("in", {n}, filling, kDense, type), output("out", {n}, kDense, type)},
        [](Tensors t) {
            return GeluForward{t[1], t[0]};
        },
        [](Values& v) { std::transform(v[0].begin(), v[0].end(), v[1].begin(), reference::gelu); }, kElementwise));
    rows.push_back(row<GeluBackward>(
        text, {input("in", {n}, filling, kDense, type), in_out("grad_out", {n}, normal(), kDense, type)},  // in place
        [](Tensors t) {
            return GeluBackward{t[1], t[1], t[0]};
        },
        [](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) v[1][i] *= gelu_slope(v[0][i]);
        },
        kElementwise));
}

void add_swiglu_rows(std::vector<Row>& rows, std::int64_t n, const std::string& kind, const Filling& filling,
                     DType type = DType::float32) {
    const std::string text = sizes({{"n", n}}) + " " + kind + suffix({type});
    constexpr Gaps kDense = Gaps::forbidden;
    rows.push_back(row<SwiGluForward>(
        text,
        {input("gate", {n}, filling, kDense, type), input("up", {n}, normal(), kDense, type),
         output("out", {n}, kDense, type)},
        [](Tensors t) {
            return SwiGluForward{t[2], t[0], t[1]};
        },
        [](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) v[2][i] = reference::silu(v[0][i]) * v[1][i];
        },
        kElementwise));
    rows.push_back(row<SwiGluBackward>(
        text,
        {input("gate", {n}, filling, kDense, type), input("up", {n}, normal(), kDense, type),
         in_out("grad_out", {n}, normal(), kDense, type), output("grad_gate", {n}, kDense, type)},
        [](Tensors t) {
            return SwiGluBackward{t[3], t[2], t[2], t[0], t[1]};
        },  // grad_up in place of grad_out
        [](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) {
                v[3][i] = v[2][i] * v[1][i] * silu_slope(v[0][i]);
                v[2][i] *= reference::silu(v[0][i]);
            }
        },
        kElementwise));
}

void add_column_sum_row(std::vector<Row>& rows, std::int64_t n, std::int64_t columns, DType in = DType::float32,
                        DType out = DType::float32) {
    rows.push_back(row<ColumnSum>(
        sizes({{"m", n}, {"n", columns}}) + suffix({in, out}),
        {input("in", {n, columns}, normal(), Gaps::allowed, in), output("out", {columns}, Gaps::forbidden, out)},
        [](Tensors t) {
            return ColumnSum{t[1], t[0]};
        },
        [](Values& v) {
            std::fill(v[1].begin(), v[1].end(), 0.0);
            for (Size i = 0; i < v[0].size(); ++i) v[1][i % v[1].size()] += v[0][i];
        },
        Tolerance{.of_largest = 1e-6}));
}

}  // namespace

std::vector<Row> activation_rows() {
    std::vector<Row> rows;
    for (const std::int64_t n : {1, 7, 8, 100, 8193, 20000}) {
        for (const DType type : {DType::float32, DType::bfloat16}) {
            add_gelu_rows(rows, n, "normal", normal(2.0), type);
            add_swiglu_rows(rows, n, "normal", normal(2.0), type);
        }
    }
    // Where exponentials overflow or vanish the functions are x, 0 or 1, never NaN.
    const Filling extremes = list({0.0, -0.0, 1e-30, -1e-30, 30.0, -30.0, 1e4, -1e4, 1e15, -1e15, 3e37, -3e37});
    for (const DType type : {DType::float32, DType::bfloat16}) {
        add_gelu_rows(rows, 12, "extremes", extremes, type);
        add_swiglu_rows(rows, 12, "extremes", extremes, type);
    }
    std::vector<Row> none;
    add_gelu_rows(none, 0, "", normal());
    add_swiglu_rows(none, 0, "", normal());
    for (Row& empty : none) rows.push_back(allow_empty(std::move(empty)));
    struct Rectangle {
        std::int64_t rows, columns;
    };
    for (const auto& [n, columns] : {Rectangle{0, 5}, Rectangle{1, 1}, Rectangle{3, 7}, Rectangle{64, 64},
                                     Rectangle{200, 131}, Rectangle{65, 1003}}) {
        add_column_sum_row(rows, n, columns);
    }
    add_column_sum_row(rows, 200, 131, DType::bfloat16, DType::bfloat16);
    add_column_sum_row(rows, 200, 131, DType::bfloat16, DType::float32);
    add_column_sum_row(rows, 200, 131, DType::float32, DType::bfloat16);
    return rows;
}

}  // namespace mfsdp::device::conformance
