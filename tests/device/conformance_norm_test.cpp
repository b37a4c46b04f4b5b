#include "mfsdp/device/half.h"
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

/// Types of the values and of the gradients of weight and bias; which of these are wanted.
struct Kind {
    DType value = DType::float32, gradient = DType::float32;
    bool in_place = false, accumulate = false, weight_wanted = true, bias_wanted = true;

    [[nodiscard]] std::string text() const {
        std::string result = suffix({value, gradient});
        if (in_place) result += " in place";
        if (accumulate) result += " accumulating";
        if (!weight_wanted) result += " without grad_weight";
        if (!bias_wanted) result += " without grad_bias";
        return result;
    }
    /// An argument of the row's type of values.
    [[nodiscard]] ArgumentOfRow in(const std::string& name, const Shape& shape, Gaps gaps = Gaps::forbidden) const {
        return input(name, shape, normal(), gaps, value);
    }
    [[nodiscard]] ArgumentOfRow out(const std::string& name, const Shape& shape, Gaps gaps = Gaps::forbidden) const {
        return output(name, shape, gaps, value);
    }
    [[nodiscard]] ArgumentOfRow changed(const std::string& name, const Shape& shape,
                                        Gaps gaps = Gaps::forbidden) const {
        return in_out(name, shape, normal(), gaps, value);
    }
    /// The gradient of a parameter of `size` elements; no elements if it is not wanted.
    [[nodiscard]] ArgumentOfRow gradient_of(const std::string& name, bool wanted, std::int64_t size) const {
        return output(name, {wanted ? size : 0}, Gaps::forbidden, gradient);
    }
};

Tensor if_wanted(bool wanted, const Tensor& tensor) { return wanted ? tensor : Tensor{}; }

void add_layer_norm_row(std::vector<Row>& rows, std::int64_t n, std::int64_t columns, const Kind& kind) {
    const auto count = static_cast<Size>(n);
    const Shape shape{n, columns};
    rows.push_back(row<LayerNormForward>(
        text(n, columns) + kind.text(),
        {kind.in_place ? kind.changed("x", shape) : kind.in("input", shape), kind.in("weight", {columns}),
         kind.in("bias", {columns}), kind.out("out", kind.in_place ? Shape{0, columns} : shape), output("mean", {n}),
         output("reciprocal_std", {n})},
        [kind](Tensors t) {
            return LayerNormForward{kind.in_place ? t[0] : t[3], t[4], t[5], t[0], t[1], t[2], kEpsilon};
        },
        [count, kind](Values& v) {
            const auto result = reference::layer_norm(v[0], v[1], v[2], count, static_cast<double>(kEpsilon));
            v[kind.in_place ? 0 : 3] = result.out;
            v[4] = result.mean;
            v[5] = result.reciprocal_std;
        },
        Tolerance{.of_largest = 2e-6}));
}

void add_layer_norm_backward_row(std::vector<Row>& rows, std::int64_t n, std::int64_t columns, const Kind& kind) {
    const Shape shape{n, columns};
    rows.push_back(row<LayerNormBackward>(
        text(n, columns) + kind.text(),
        {kind.in("grad_out", shape), kind.in("input", shape), input("mean", {n}, normal(0.1)),
         input("reciprocal_std", {n}, uniform(0.5, 2.0)), kind.in("weight", {columns}),
         kind.accumulate ? kind.changed("grad_input", shape) : kind.out("grad_input", shape),
         kind.gradient_of("grad_weight", kind.weight_wanted, columns),
         kind.gradient_of("grad_bias", kind.bias_wanted, columns)},
        [kind](Tensors t) {
            return LayerNormBackward{t[5],
                                     if_wanted(kind.weight_wanted, t[6]),
                                     if_wanted(kind.bias_wanted, t[7]),
                                     t[0],
                                     t[1],
                                     t[2],
                                     t[3],
                                     t[4],
                                     kind.accumulate};
        },
        [kind](Values& v) {
            const Vector normal = normalised(v[1], &v[2], v[3], v[4].size());
            add_to_input_gradient(v[5], v[0], normal, v[4], v[3], true, kind.accumulate);
            if (kind.weight_wanted) add_column_sums(v[6], v[0], &normal);
            if (kind.bias_wanted) add_column_sums(v[7], v[0], nullptr);
        },
        Tolerance{.of_largest = 2e-6}));
}

/// Rows [n, C], or heads [n, H, D] if there are heads.
struct Rectangle {
    std::int64_t rows, columns, heads = 0;
    [[nodiscard]] Shape shape() const { return heads == 0 ? Shape{rows, columns} : Shape{rows, heads, columns}; }
    [[nodiscard]] Shape statistics() const { return heads == 0 ? Shape{rows} : Shape{rows, heads}; }
    [[nodiscard]] std::string text() const { return sizes({{"n", rows}, {"C", columns}, {"H", heads}}); }
};

/// a + b as a device stores it in this type.
Vector stored_sum(const Vector& a, const Vector& b, DType dtype) {
    Vector result(a.size());
    for (Size i = 0; i < a.size(); ++i) {
        const auto sum = static_cast<float>(a[i] + b[i]);
        result[i] = static_cast<double>(dtype == DType::bfloat16 ? widened(rounded<BFloat16>(sum)) : sum);
    }
    return result;
}

/// Both norms of input + residual; in place the sum takes the residual's place, or else the input's.
void add_residual_rows(std::vector<Row>& rows, std::int64_t n, std::int64_t columns, const Kind& kind) {
    const auto count = static_cast<Size>(n);
    const Shape shape{n, columns};
    const std::string name = text(n, columns) + kind.text() + " with residual";
    const ArgumentOfRow stream = kind.changed("stream", shape), other = kind.in("other", shape);
    const auto input_of = [kind](Tensors t) { return kind.in_place ? t[1] : t[0]; };
    const auto residual_of = [kind](Tensors t) { return kind.in_place ? t[0] : t[1]; };
    rows.push_back(row<LayerNormForward>(
        name,
        {stream, other, kind.in("weight", {columns}), kind.in("bias", {columns}), kind.out("out", shape),
         output("mean", {n}), output("reciprocal_std", {n})},
        [=](Tensors t) {
            return LayerNormForward{t[4], t[5], t[6], input_of(t), t[2], t[3], kEpsilon, residual_of(t), t[0]};
        },
        [count, kind](Values& v) {
            v[0] = stored_sum(v[0], v[1], kind.value);
            const auto result = reference::layer_norm(v[0], v[2], v[3], count, static_cast<double>(kEpsilon));
            v[4] = result.out;
            v[5] = result.mean;
            v[6] = result.reciprocal_std;
        },
        Tolerance{.of_largest = 2e-6}));
    rows.push_back(row<RmsNormForward>(
        name, {stream, other, kind.in("weight", {columns}), kind.out("out", shape), output("reciprocal_rms", {n})},
        [=](Tensors t) { return RmsNormForward{t[3], t[4], input_of(t), t[2], kEpsilon, residual_of(t), t[0]}; },
        [count, kind](Values& v) {
            v[0] = stored_sum(v[0], v[1], kind.value);
            const auto result = reference::rms_norm(v[0], v[2], count, static_cast<double>(kEpsilon));
            v[3] = result.out;
            v[4] = result.reciprocal_rms;
        },
        Tolerance{.of_largest = 2e-6}));
}

void add_rms_norm_row(std::vector<Row>& rows, const Rectangle& size, const Kind& kind) {
    const Shape shape = size.shape();
    const auto count = static_cast<Size>(size.rows * std::max<std::int64_t>(1, size.heads));
    rows.push_back(row<RmsNormForward>(
        size.text() + kind.text(),
        {kind.in_place ? kind.changed("x", shape, Gaps::allowed) : kind.in("input", shape, Gaps::allowed),
         kind.in("weight", {size.columns}),
         kind.out("out", kind.in_place ? Shape{0, size.columns} : shape, Gaps::allowed),
         output("reciprocal_rms", size.statistics())},
        [kind](Tensors t) {
            return RmsNormForward{kind.in_place ? t[0] : t[2], t[3], t[0], t[1], kEpsilon};
        },
        [count, kind](Values& v) {
            const auto result = reference::rms_norm(v[0], v[1], count, static_cast<double>(kEpsilon));
            v[kind.in_place ? 0 : 2] = result.out;
            v[3] = result.reciprocal_rms;
        },
        Tolerance{.of_largest = 2e-6}));
}

/// In place: grad_input takes the place of grad_out.
void add_rms_norm_backward_row(std::vector<Row>& rows, const Rectangle& size, const Kind& kind) {
    const Shape shape = size.shape();
    rows.push_back(row<RmsNormBackward>(
        size.text() + kind.text(),
        {kind.in_place ? kind.changed("gradient", shape, Gaps::allowed) : kind.in("grad_out", shape, Gaps::allowed),
         kind.in("input", shape, Gaps::allowed), input("reciprocal_rms", size.statistics(), uniform(0.5, 2.0)),
         kind.in("weight", {size.columns}),
         kind.accumulate ? kind.changed("grad_input", shape, Gaps::allowed)
                         : kind.out("grad_input", kind.in_place ? Shape{0, size.columns} : shape, Gaps::allowed),
         kind.gradient_of("grad_weight", kind.weight_wanted, size.columns)},
        [kind](Tensors t) {
            return RmsNormBackward{kind.in_place ? t[0] : t[4],
                                   if_wanted(kind.weight_wanted, t[5]),
                                   t[0],
                                   t[1],
                                   t[2],
                                   t[3],
                                   kind.accumulate};
        },
        [kind](Values& v) {
            const Vector normal = normalised(v[1], nullptr, v[2], v[3].size());
            if (kind.weight_wanted) add_column_sums(v[5], v[0], &normal);
            Vector gradient(v[0].size());
            if (kind.accumulate) gradient = v[4];
            add_to_input_gradient(gradient, v[0], normal, v[3], v[2], false, kind.accumulate);
            v[kind.in_place ? 0 : 4] = gradient;
        },
        Tolerance{.of_largest = 2e-6}));
}

}  // namespace

std::vector<Row> norm_rows() {
    constexpr DType kFloat = DType::float32, kHalf = DType::bfloat16;
    std::vector<Row> rows;
    for (const Rectangle& size : {Rectangle{1, 1}, Rectangle{3, 8}, Rectangle{7, 13}, Rectangle{9, 64},
                                  Rectangle{65, 33}, Rectangle{130, 100}, Rectangle{2, 1000}}) {
        add_layer_norm_row(rows, size.rows, size.columns, {});
        add_layer_norm_row(rows, size.rows, size.columns, {.in_place = true});
        add_rms_norm_row(rows, size, {});
        for (const bool accumulate : {false, true}) {
            add_layer_norm_backward_row(rows, size.rows, size.columns, {.accumulate = accumulate});
            add_rms_norm_backward_row(rows, size, {.accumulate = accumulate});
        }
    }
    for (const Rectangle& size : {Rectangle{7, 13}, Rectangle{130, 100}}) {
        for (const bool changing : {false, true}) {
            add_layer_norm_row(rows, size.rows, size.columns, {.value = kHalf, .in_place = changing});
            add_rms_norm_row(rows, size, {.value = kHalf, .in_place = changing});
            for (const DType gradient : {kFloat, kHalf}) {
                const Kind kind{.value = kHalf, .gradient = gradient, .accumulate = changing};
                add_layer_norm_backward_row(rows, size.rows, size.columns, kind);
                add_rms_norm_backward_row(rows, size, kind);
            }
        }
        add_layer_norm_backward_row(rows, size.rows, size.columns, {.gradient = kHalf});
        add_rms_norm_backward_row(rows, size, {.gradient = kHalf});
        add_layer_norm_backward_row(rows, size.rows, size.columns, {.weight_wanted = false});
        add_layer_norm_backward_row(rows, size.rows, size.columns, {.gradient = kHalf, .bias_wanted = false});
        add_layer_norm_backward_row(rows, size.rows, size.columns, {.weight_wanted = false, .bias_wanted = false});
        add_rms_norm_backward_row(rows, size, {.weight_wanted = false});
    }
    for (const DType value : {kFloat, kHalf}) {
        for (const bool in_place : {false, true}) {
            for (const Rectangle& size :
                 {Rectangle{7, 13}, Rectangle{9, 64}, Rectangle{130, 100}, Rectangle{3, 1000}}) {
                add_residual_rows(rows, size.rows, size.columns, {.value = value, .in_place = in_place});
            }
        }
    }
    add_residual_rows(rows, 2, 16500, {});
    add_residual_rows(rows, 2, 16500, {.in_place = true});
    // Rows that take several vectors of each thread of a GPU's block, and some that none of its blocks can keep.
    add_layer_norm_row(rows, 2, 16500, {});
    add_rms_norm_row(rows, {2, 16500}, {.in_place = true});
    add_layer_norm_backward_row(rows, 70, 600, {.accumulate = true});
    add_rms_norm_backward_row(rows, {70, 600}, {.value = kHalf});
    add_layer_norm_backward_row(rows, 1, 4104, {.accumulate = true});
    add_rms_norm_backward_row(rows, {1, 8200}, {.in_place = true});
    // The most shared memory that a GPU's block has without asking.
    add_rms_norm_backward_row(rows, {1, 12288}, {.value = kHalf});
    for (const Rectangle& size : {Rectangle{1, 5, 1}, Rectangle{5, 16, 3}, Rectangle{40, 33, 4}}) {
        for (const DType value : {kFloat, kHalf}) {
            for (const bool in_place : {false, true}) {
                add_rms_norm_row(rows, size, {.value = value, .in_place = in_place});
                add_rms_norm_backward_row(rows, size, {.value = value, .in_place = in_place});
            }
        }
        add_rms_norm_backward_row(rows, size, {.accumulate = true});
    }
    std::vector<Row> none;
    add_layer_norm_row(none, 0, 5, {});
    add_rms_norm_row(none, {0, 5}, {});
    add_rms_norm_row(none, {3, 5, 0}, {});
    add_rms_norm_row(none, {0, 5, 2}, {});
    add_residual_rows(none, 0, 5, {});
    for (Row& empty : none) rows.push_back(allow_empty(std::move(empty)));
    add_layer_norm_backward_row(rows, 0, 5, {});  // the sums over no rows are zeros, not nothing
    add_rms_norm_backward_row(rows, {0, 5}, {});
    return rows;
}

}  // namespace mfsdp::device::conformance
