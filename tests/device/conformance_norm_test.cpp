#include "mfsdp/device/ops/norm.h"

#include "device/conformance.h"
#include "device/reference.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::device::conformance {

namespace {

using reference::Size;
using reference::Vector;

constexpr float kEpsilon = 1e-5F;

std::string text(std::int64_t rows, std::int64_t columns) { return sizes({{"n", rows}, {"C", columns}}); }

/// grad_in[j] of one row: sum over i of grad_out[i] weight[i] d(normal[i])/d(in[j]), with the whole Jacobian
/// d(normal[i])/d(in[j]) = reciprocal (delta_ij - centre - normal[i] normal[j] / C); centre is 1/C for LayerNorm and 0
/// for RmsNorm.
Vector input_gradient(const Vector& grad_out, const Vector& normal, const Vector& weight, Size row, double reciprocal,
                      double centre) {
    const Size columns = weight.size();
    Vector result(columns, 0.0);
    for (Size j = 0; j < columns; ++j) {
        for (Size i = 0; i < columns; ++i) {
            const double product = normal[row * columns + i] * normal[row * columns + j];
            const double jacobian =
                reciprocal * ((i == j ? 1.0 : 0.0) - centre - product / static_cast<double>(columns));
            result[j] += grad_out[row * columns + i] * weight[i] * jacobian;
        }
    }
    return result;
}

/// The input divided by its scale, from the statistics that the operation is given (they are rounded to float32).
Vector normalised(const Vector& in, const Vector* shift, const Vector& reciprocal, Size columns) {
    Vector result(in.size());
    for (Size i = 0; i < in.size(); ++i) {
        result[i] = (in[i] - (shift == nullptr ? 0.0 : (*shift)[i / columns])) * reciprocal[i / columns];
    }
    return result;
}

void add_to_input_gradient(Vector& grad_in, const Vector& grad_out, const Vector& normal, const Vector& weight,
                           const Vector& reciprocal, bool centred, bool accumulate) {
    const Size columns = weight.size();
    const double centre = centred ? 1.0 / static_cast<double>(columns) : 0.0;
    for (Size r = 0; r < reciprocal.size(); ++r) {
        const Vector row = input_gradient(grad_out, normal, weight, r, reciprocal[r], centre);
        for (Size c = 0; c < columns; ++c) {
            grad_in[r * columns + c] = row[c] + (accumulate ? grad_in[r * columns + c] : 0.0);
        }
    }
}

void add_column_sums(Vector& sums, const Vector& grad_out, const Vector* factor) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (Size i = 0; i < grad_out.size(); ++i) {
        sums[i % sums.size()] += grad_out[i] * (factor == nullptr ? 1.0 : (*factor)[i]);
    }
}

void add_layer_norm_rows(std::vector<Row>& rows, std::int64_t n, std::int64_t columns, bool in_place) {
    const auto count = static_cast<Size>(n);
    const ArgumentOfRow in = in_place ? in_out("x", {n, columns}) : input("input", {n, columns});
    const ArgumentOfRow out = in_place ? output("unused", {0, columns}) : output("out", {n, columns});
    rows.push_back(row<LayerNormForward>(
        text(n, columns) + (in_place ? " in place" : ""),
        {in, input("weight", {columns}), input("bias", {columns}), out, output("mean", {n}),
         output("reciprocal_std", {n})},
        [in_place](Tensors t) {
            return LayerNormForward{in_place ? t[0] : t[3], t[4], t[5], t[0], t[1], t[2], kEpsilon};
        },
        [count, in_place](Values& v) {
            const auto result = reference::layer_norm(v[0], v[1], v[2], count, static_cast<double>(kEpsilon));
            v[in_place ? 0 : 3] = result.out;
            v[4] = result.mean;
            v[5] = result.reciprocal_std;
        },
        Tolerance{.of_largest = 2e-6}));
}

void add_layer_norm_backward_row(std::vector<Row>& rows, std::int64_t n, std::int64_t columns, bool accumulate) {
    rows.push_back(row<LayerNormBackward>(
        text(n, columns) + (accumulate ? " accumulating" : ""),
        {input("grad_out", {n, columns}), input("input", {n, columns}), input("mean", {n}, normal(0.1)),
         input("reciprocal_std", {n}, uniform(0.5, 2.0)), input("weight", {columns}),
         accumulate ? in_out("grad_input", {n, columns}) : output("grad_input", {n, columns}),
         output("grad_weight", {columns}), output("grad_bias", {columns})},
        [accumulate](Tensors t) {
            return LayerNormBackward{t[5], t[6], t[7], t[0], t[1], t[2], t[3], t[4], accumulate};
        },
        [accumulate](Values& v) {
            const Vector normal = normalised(v[1], &v[2], v[3], v[4].size());
            add_to_input_gradient(v[5], v[0], normal, v[4], v[3], true, accumulate);
            add_column_sums(v[6], v[0], &normal);
            add_column_sums(v[7], v[0], nullptr);
        },
        Tolerance{.of_largest = 2e-6}));
}

void add_rms_norm_rows(std::vector<Row>& rows, std::int64_t n, std::int64_t columns) {
    const auto count = static_cast<Size>(n);
    rows.push_back(row<RmsNormForward>(
        text(n, columns),
        {input("input", {n, columns}, normal(), Gaps::allowed), input("weight", {columns}),
         output("out", {n, columns}, Gaps::allowed), output("reciprocal_rms", {n})},
        [](Tensors t) {
            return RmsNormForward{t[2], t[3], t[0], t[1], kEpsilon};
        },
        [count](Values& v) {
            const auto result = reference::rms_norm(v[0], v[1], count, static_cast<double>(kEpsilon));
            v[2] = result.out;
            v[3] = result.reciprocal_rms;
        },
        Tolerance{.of_largest = 2e-6}));
}

void add_rms_norm_backward_row(std::vector<Row>& rows, std::int64_t n, std::int64_t columns, bool accumulate) {
    rows.push_back(row<RmsNormBackward>(
        text(n, columns) + (accumulate ? " accumulating" : ""),
        {input("grad_out", {n, columns}, normal(), Gaps::allowed),
         input("input", {n, columns}, normal(), Gaps::allowed), input("reciprocal_rms", {n}, uniform(0.5, 2.0)),
         input("weight", {columns}),
         accumulate ? in_out("grad_input", {n, columns}, normal(), Gaps::allowed)
                    : output("grad_input", {n, columns}, Gaps::allowed),
         output("grad_weight", {columns})},
        [accumulate](Tensors t) { return RmsNormBackward{t[4], t[5], t[0], t[1], t[2], t[3], accumulate}; },
        [accumulate](Values& v) {
            const Vector normal = normalised(v[1], nullptr, v[2], v[3].size());
            add_to_input_gradient(v[4], v[0], normal, v[3], v[2], false, accumulate);
            add_column_sums(v[5], v[0], &normal);
        },
        Tolerance{.of_largest = 2e-6}));
}

}  // namespace

std::vector<Row> norm_rows() {
    std::vector<Row> rows;
    struct Rectangle {
        std::int64_t rows, columns;
    };
    for (const auto& [n, columns] : {Rectangle{1, 1}, Rectangle{3, 8}, Rectangle{7, 13}, Rectangle{9, 64},
                                     Rectangle{65, 33}, Rectangle{130, 100}, Rectangle{2, 1000}}) {
        add_layer_norm_rows(rows, n, columns, false);
        add_layer_norm_rows(rows, n, columns, true);
        add_rms_norm_rows(rows, n, columns);
        for (const bool accumulate : {false, true}) {
            add_layer_norm_backward_row(rows, n, columns, accumulate);
            add_rms_norm_backward_row(rows, n, columns, accumulate);
        }
    }
    std::vector<Row> none;
    add_layer_norm_rows(none, 0, 5, false);
    add_rms_norm_rows(none, 0, 5);
    for (Row& empty : none) rows.push_back(allow_empty(std::move(empty)));
    add_layer_norm_backward_row(rows, 0, 5, false);  // the sums over no rows are zeros, not nothing
    add_rms_norm_backward_row(rows, 0, 5, false);
    return rows;
}

}  // namespace mfsdp::device::conformance
