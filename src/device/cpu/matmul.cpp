#include "mfsdp/device/ops/matmul.h"

#include "device/cpu/element.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panels.h"
#include "device/cpu/product.h"
#include "device/cpu/scratch.h"

#include <algorithm>
#include <type_traits>

namespace mfsdp::device::cpu {

namespace {

/// The rows of one matrix of a batch. A matrix of one row may have any stride, one that is too small is refused by
/// oneDNN.
template <class T>
struct MatrixRows {
    T* data;
    std::int64_t stride;
};

template <class T>
MatrixRows<T> rows_of(const Context& context, const Tensor& tensor, std::int64_t index) {
    const auto last = static_cast<std::size_t>(tensor.rank - 1);
    const std::int64_t stride = tensor.shape[last - 1] <= 1 ? tensor.shape[last] : tensor.strides[last - 1];
    return {context.data<T>(tensor) + (tensor.rank == 3 ? index * tensor.strides[0] : 0), stride};
}

/// An operand from row `row` and column `column` of the matrix that is multiplied.
template <class T>
MatrixOperand<T> operand(const Context& context, const Tensor& tensor, bool transposed, std::int64_t index,
                         std::int64_t row, std::int64_t column) {
    const auto matrix = rows_of<const T>(context, tensor, index);
    const std::int64_t offset = transposed ? column * matrix.stride + row : row * matrix.stride + column;
    return {matrix.data + offset, matrix.stride, transposed};
}

/// c = beta * c, where there is nothing to multiply.
template <class T>
void scale(const Product<T>& product) {
    for (std::int64_t row = 0; row < product.rows; ++row) {
        float* const line = product.c + row * product.c_stride;
        if (product.beta == 0.0F) {
            std::fill_n(line, product.columns, 0.0F);
        } else {
            for (std::int64_t column = 0; column < product.columns; ++column) line[column] *= product.beta;
        }
    }
}

/// target [rows, columns] = source; both types are float, or one of them is stored in 16 bits.
template <class To, class From>
void copy_panel(MatrixRows<To> target, MatrixRows<const From> source, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t row = 0; row < rows; ++row) {
        To* const to = target.data + row * target.stride;
        const From* const from = source.data + row * source.stride;
        for_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
            store_lanes(to + i, load_lanes(from + i, lanes), lanes);
        });
    }
}

template <class T>
void add_bias(MatrixRows<float> panel, std::int64_t rows, std::int64_t columns, const T* bias) {
    for (std::int64_t row = 0; row < rows; ++row) {
        float* const line = panel.data + row * panel.stride;
        for_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
            store_lanes(line + i, load_lanes(line + i, lanes) + load_lanes(bias + i, lanes), lanes);
        });
    }
}

/// Memory of a panel whose result is rounded: sums stay in float32 until they are complete.
struct PanelUse {};

/// One panel: the product into `out` itself if that is float32, else into scratch and rounded from there.
template <class T, class To>
void multiply_panel(const Context& context, const Matmul& operation, Product<T> product, MatrixRows<To> out,
                    std::int64_t first_column) {
    constexpr bool kRounds = !std::is_same_v<To, float>;
    MatrixRows<float> sums{nullptr, product.columns};
    if constexpr (kRounds) {
        sums.data = thread_scratch<float, PanelUse>(product.rows * product.columns);
        if (product.beta != 0.0F) {
            copy_panel<float, To>(sums, {out.data, out.stride}, product.rows, product.columns);
        }
    } else {
        sums = out;
    }
    product.c = sums.data;
    product.c_stride = sums.stride;
    if (product.inner == 0 || product.alpha == 0.0F) {
        scale(product);
    } else {
        std::get<Multiply<T>*>(context.products)(product);
    }
    if (operation.bias.defined()) {
        with_value_type(operation.bias.dtype, [&](auto type) {
            const auto* const bias = context.data<const ElementOf<decltype(type)>>(operation.bias);
            add_bias(sums, product.rows, product.columns, bias + first_column);
        });
    }
    if constexpr (kRounds) copy_panel<To, float>(out, {sums.data, sums.stride}, product.rows, product.columns);
}

template <class T, class To>
void multiply(const Context& context, const Matmul& operation) {
    const Tensor& out = operation.out;
    const auto last = static_cast<std::size_t>(out.rank - 1);
    const std::int64_t batch = out.rank == 3 ? out.shape[0] : 1;
    const std::int64_t rows = out.shape[last - 1], columns = out.shape[last];
    const std::int64_t inner = operation.a.shape[operation.transpose_a ? last - 1 : last];
    if (batch == 0 || rows == 0 || columns == 0) return;

    const Panels panels = cut_into_panels(rows, columns, inner);
    const std::int64_t column_panels = panels.column_panels(columns);
    const std::int64_t per_matrix = panels.row_panels(rows) * column_panels;
    context.threads.parallel_for(batch * per_matrix, [&](std::int64_t index) {
        const std::int64_t which = index / per_matrix;
        const std::int64_t row = index % per_matrix / column_panels * panels.rows;
        const std::int64_t column = index % per_matrix % column_panels * panels.columns;
        MatrixRows<To> target = rows_of<To>(context, out, which);
        target.data += row * target.stride + column;
        Product<T> product;
        product.rows = std::min(panels.rows, rows - row);
        product.columns = std::min(panels.columns, columns - column);
        product.inner = inner;
        product.a = operand<T>(context, operation.a, operation.transpose_a, which, row, 0);
        product.b = operand<T>(context, operation.b, operation.transpose_b, which, 0, column);
        product.alpha = operation.alpha;
        product.beta = operation.beta;
        multiply_panel<T, To>(context, operation, product, target, column);
    });
}

}  // namespace

void run(const Context& context, const Matmul& operation) {
    with_float_type(operation.a.dtype, [&](auto type) {
        with_float_type(operation.out.dtype, [&](auto out) {
            multiply<ElementOf<decltype(type)>, ElementOf<decltype(out)>>(context, operation);
        });
    });
}

}  // namespace mfsdp::device::cpu
