#include "device/cpu/column_blocks.h"
#include "device/cpu/element.h"
#include "device/cpu/float8.h"
#include "device/cpu/kernels.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::device::cpu {

namespace {

constexpr std::int64_t kRowsPerPiece = 8;

template <class Body>
void for_rows(const Context& context, std::int64_t rows, const Body& body) {
    context.threads.parallel_for((rows + kRowsPerPiece - 1) / kRowsPerPiece, [&](std::int64_t piece) {
        const std::int64_t end = std::min(rows, (piece + 1) * kRowsPerPiece);
        for (std::int64_t row = piece * kRowsPerPiece; row < end; ++row) body(row);
    });
}

/// The rows of a tensor [n, C], or of [n, H, D] counted through all heads.
template <class T>
class Rows {
  public:
    Rows(const Context& context, const Tensor& tensor)
        : data_(context.data<T>(tensor)),
          heads_(tensor.rank == 3 ? std::max<std::int64_t>(1, tensor.shape[1]) : 1),
          token_stride_(tensor.strides[0]),
          head_stride_(tensor.rank == 3 ? tensor.strides[1] : 0) {}

    [[nodiscard]] T* at(std::int64_t row) const {
        if (heads_ == 1) return data_ + row * token_stride_;
        return data_ + row / heads_ * token_stride_ + row % heads_ * head_stride_;
    }

  private:
    T* data_;
    std::int64_t heads_, token_stride_, head_stride_;
};

/// The rows that a forward operation norms: the input's, or those of its sum with the residual stream.
template <class T>
class NormedRows {
  public:
    template <class Op>
    NormedRows(const Context& context, const Op& operation)
        : input_(context, operation.input), columns_(operation.input.columns()) {
        if (!operation.residual.defined()) return;
        residual_ = context.data<const T>(operation.residual);
        sum_ = context.data<T>(operation.sum);
    }

    /// The row to norm; a sum is written first.
    [[nodiscard]] const T* at(std::int64_t row) const {
        const T* const in = input_.at(row);
        if (residual_ == nullptr) return in;
        const T* const residual = residual_ + row * columns_;
        T* const sum = sum_ + row * columns_;
        for_vectors(columns_, [=](std::int64_t i, std::int64_t lanes) {
            store_lanes(sum + i, load_lanes(in + i, lanes) + load_lanes(residual + i, lanes), lanes);
        });
        return sum;
    }

  private:
    Rows<const T> input_;
    std::int64_t columns_;
    const T* residual_ = nullptr;
    T* sum_ = nullptr;
};

/// One row through LayerNorm; gives the mean and the reciprocal of the standard deviation.
struct LayerNormRow {
    float mean, reciprocal_std;
};

template <class T>
LayerNormRow layer_norm_row(T* out, const T* in, const T* weight, const T* bias, std::int64_t columns, float epsilon) {
    const float count = static_cast<float>(columns);
    const float mean =
        sum_vectors(columns, [=](std::int64_t i, std::int64_t lanes) { return load_lanes(in + i, lanes); }) / count;
    const Float8 means = broadcast(mean);
    // Second pass over the row: a difference of sums of squares would cancel.
    const float squares = sum_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
        const Float8 difference = load_lanes(in + i, lanes, mean) - means;
        return difference * difference;
    });
    const float reciprocal_std = 1.0F / std::sqrt(squares / count + epsilon);
    for_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
        const Float8 normal = (load_lanes(in + i, lanes) - means) * broadcast(reciprocal_std);
        store_lanes(out + i, fma(normal, load_lanes(weight + i, lanes), load_lanes(bias + i, lanes)), lanes);
    });
    return {mean, reciprocal_std};
}

/// grad_in (+)= reciprocal * (g - mean(g) - x * mean(g x)) with g = grad_out * weight and x the normalised input, which
/// is (in - shift) * reciprocal. kCentred = false leaves mean(g) and the shift out: that is RmsNorm. Sums are complete
/// before the first store, and what is stored depends on the elements in its place: grad_in may be grad_out or in.
template <bool kCentred, class T>
void norm_backward_row(T* grad_in, const T* grad_out, const T* in, const T* weight, std::int64_t columns, float shift,
                       float reciprocal, bool accumulate) {
    const float count = static_cast<float>(columns);
    const auto normal = [=](std::int64_t i, std::int64_t lanes) {
        const Float8 x = load_lanes(in + i, lanes, shift);
        return (kCentred ? x - broadcast(shift) : x) * broadcast(reciprocal);
    };
    const auto weighted = [=](std::int64_t i, std::int64_t lanes) {
        return load_lanes(grad_out + i, lanes) * load_lanes(weight + i, lanes);
    };
    const float mean_product =
        sum_vectors(columns,
                    [&](std::int64_t i, std::int64_t lanes) { return weighted(i, lanes) * normal(i, lanes); }) /
        count;
    const float mean_gradient = kCentred ? sum_vectors(columns, weighted) / count : 0.0F;
    for_vectors(columns, [&](std::int64_t i, std::int64_t lanes) {
        Float8 g = weighted(i, lanes);
        if constexpr (kCentred) g -= broadcast(mean_gradient);
        const Float8 bracket = fma(normal(i, lanes), broadcast(-mean_product), g);
        const Float8 gradient = bracket * broadcast(reciprocal);
        store_lanes(grad_in + i, accumulate ? load_lanes(grad_in + i, lanes) + gradient : gradient, lanes);
    });
}

template <class T>
void layer_norm_forward(const Context& context, const LayerNormForward& operation) {
    const std::int64_t columns = operation.input.shape[1];
    T* const out = context.data<T>(operation.out);
    float* const mean = context.data<float>(operation.mean);
    float* const reciprocal_std = context.data<float>(operation.reciprocal_std);
    const NormedRows<T> in(context, operation);
    const T* const weight = context.data<const T>(operation.weight);
    const T* const bias = context.data<const T>(operation.bias);
    for_rows(context, operation.input.shape[0], [&](std::int64_t row) {
        const LayerNormRow statistics =
            layer_norm_row(out + row * columns, in.at(row), weight, bias, columns, operation.epsilon);
        mean[row] = statistics.mean;
        reciprocal_std[row] = statistics.reciprocal_std;
    });
}

/// T is the type of values, G that of the gradients of weight and bias. The column sums come first: grad_input may take
/// the place of the input.
template <class T, class G>
void layer_norm_backward(const Context& context, const LayerNormBackward& operation) {
    const std::int64_t rows = operation.input.shape[0];
    const std::int64_t columns = operation.input.shape[1];
    T* const grad_in = context.data<T>(operation.grad_input);
    const T* const grad_out = context.data<const T>(operation.grad_out);
    const T* const in = context.data<const T>(operation.input);
    const float* const mean = context.data<const float>(operation.mean);
    const float* const reciprocal_std = context.data<const float>(operation.reciprocal_std);
    const T* const weight = context.data<const T>(operation.weight);
    G* const totals[2] = {context.data<G>(operation.grad_weight), context.data<G>(operation.grad_bias)};
    sum_columns(context.threads, rows, columns, totals, [=](std::int64_t row) {
        const std::int64_t offset = row * columns;
        const Float8 shift = broadcast(mean[row]), reciprocal = broadcast(reciprocal_std[row]);
        return [=](std::int64_t column, std::int64_t lanes, Float8* sums) {
            const Float8 g = load_lanes(grad_out + offset + column, lanes);
            const Float8 normal = (load_lanes(in + offset + column, lanes) - shift) * reciprocal;
            sums[0] = fma(g, normal, sums[0]);
            sums[1] += g;
        };
    });
    for_rows(context, rows, [&](std::int64_t row) {
        const std::int64_t offset = row * columns;
        norm_backward_row<true>(grad_in + offset, grad_out + offset, in + offset, weight, columns, mean[row],
                                reciprocal_std[row], operation.accumulate_input);
    });
}

template <class T>
void rms_norm_forward(const Context& context, const RmsNormForward& operation) {
    const std::int64_t columns = operation.input.columns();
    const Rows<T> out(context, operation.out);
    const NormedRows<T> in(context, operation);
    float* const reciprocal_rms = context.data<float>(operation.reciprocal_rms);
    const T* const weight = context.data<const T>(operation.weight);
    for_rows(context, operation.input.rows(), [&](std::int64_t row) {
        const T* const source = in.at(row);
        T* const target = out.at(row);
        const float squares = sum_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
            const Float8 x = load_lanes(source + i, lanes);
            return x * x;
        });
        const float reciprocal = 1.0F / std::sqrt(squares / static_cast<float>(columns) + operation.epsilon);
        for_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
            const Float8 normal = load_lanes(source + i, lanes) * broadcast(reciprocal);
            store_lanes(target + i, normal * load_lanes(weight + i, lanes), lanes);
        });
        reciprocal_rms[row] = reciprocal;
    });
}

/// As layer_norm_backward.
template <class T, class G>
void rms_norm_backward(const Context& context, const RmsNormBackward& operation) {
    const std::int64_t rows = operation.input.rows();
    const std::int64_t columns = operation.input.columns();
    const Rows<T> grad_in(context, operation.grad_input);
    const Rows<const T> grad_out(context, operation.grad_out), in(context, operation.input);
    const float* const reciprocal_rms = context.data<const float>(operation.reciprocal_rms);
    const T* const weight = context.data<const T>(operation.weight);
    G* const totals[1] = {context.data<G>(operation.grad_weight)};
    sum_columns(context.threads, rows, columns, totals, [=](std::int64_t row) {
        const Float8 reciprocal = broadcast(reciprocal_rms[row]);
        return [=, g = grad_out.at(row), x = in.at(row)](std::int64_t column, std::int64_t lanes, Float8* sums) {
            const Float8 normal = load_lanes(x + column, lanes) * reciprocal;
            sums[0] = fma(load_lanes(g + column, lanes), normal, sums[0]);
        };
    });
    for_rows(context, rows, [&](std::int64_t row) {
        norm_backward_row<false>(grad_in.at(row), grad_out.at(row), in.at(row), weight, columns, 0.0F,
                                 reciprocal_rms[row], operation.accumulate_input);
    });
}

}  // namespace

void run(const Context& context, const LayerNormForward& operation) {
    with_value_type(operation.input.dtype,
                    [&](auto type) { layer_norm_forward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const LayerNormBackward& operation) {
    const Tensor& wanted = operation.grad_weight.defined() ? operation.grad_weight : operation.grad_bias;
    with_value_type(operation.input.dtype, [&](auto type) {
        with_value_type(wanted.dtype, [&](auto gradient) {
            layer_norm_backward<ElementOf<decltype(type)>, ElementOf<decltype(gradient)>>(context, operation);
        });
    });
}

void run(const Context& context, const RmsNormForward& operation) {
    with_value_type(operation.input.dtype,
                    [&](auto type) { rms_norm_forward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const RmsNormBackward& operation) {
    with_value_type(operation.input.dtype, [&](auto type) {
        with_value_type(operation.grad_weight.dtype, [&](auto gradient) {
            rms_norm_backward<ElementOf<decltype(type)>, ElementOf<decltype(gradient)>>(context, operation);
        });
    });
}

}  // namespace mfsdp::device::cpu
