#include "mfsdp/device/ops/matmul.h"

#include "device/cpu/kernels.h"
#include "device/cpu/panels.h"
#include "device/cpu/product.h"

#include <algorithm>

namespace mfsdp::device::cpu {

namespace {

/// One matrix of a batch as the products need it. A matrix of one row may have any stride, one that is too small is
/// refused by oneDNN.
MatrixOperand matrix(const Context& context, const Tensor& tensor, bool transposed, std::int64_t index) {
    const auto last = static_cast<std::size_t>(tensor.rank - 1);
    const std::int64_t rows = tensor.shape[last - 1], columns = tensor.shape[last];
    const std::int64_t stride = rows <= 1 ? columns : tensor.strides[last - 1];
    const std::int64_t offset = tensor.rank == 3 ? index * tensor.strides[0] : 0;
    return {context.data<const float>(tensor) + offset, stride, transposed};
}

/// The operand's part that begins at `index` along its rows as they are multiplied.
MatrixOperand from_row(MatrixOperand operand, std::int64_t index) {
    operand.data += operand.transposed ? index : index * operand.stride;
    return operand;
}
MatrixOperand from_column(MatrixOperand operand, std::int64_t index) {
    operand.data += operand.transposed ? index * operand.stride : index;
    return operand;
}

/// c = beta * c, where there is nothing to multiply.
void scale(const Product& product) {
    for (std::int64_t row = 0; row < product.rows; ++row) {
        float* const line = product.c + row * product.c_stride;
        if (product.beta == 0.0F) {
            std::fill_n(line, product.columns, 0.0F);
        } else {
            for (std::int64_t column = 0; column < product.columns; ++column) line[column] *= product.beta;
        }
    }
}

void add_bias(const Product& product, const float* bias) {
    for (std::int64_t row = 0; row < product.rows; ++row) {
        float* const line = product.c + row * product.c_stride;
        for (std::int64_t column = 0; column < product.columns; ++column) line[column] += bias[column];
    }
}

}  // namespace

void run(const Context& context, const Matmul& operation) {
    const Tensor& out = operation.out;
    const auto last = static_cast<std::size_t>(out.rank - 1);
    const std::int64_t batch = out.rank == 3 ? out.shape[0] : 1;
    const std::int64_t rows = out.shape[last - 1], columns = out.shape[last];
    const std::int64_t inner = operation.a.shape[operation.transpose_a ? last - 1 : last];
    if (batch == 0 || rows == 0 || columns == 0) return;

    const Panels panels = cut_into_panels(rows, columns, inner);
    const std::int64_t column_panels = panels.column_panels(columns);
    const std::int64_t per_matrix = panels.row_panels(rows) * column_panels;
    const float* const bias = context.data<const float>(operation.bias);
    context.threads.parallel_for(batch * per_matrix, [&](std::int64_t index) {
        const std::int64_t which = index / per_matrix;
        const std::int64_t row = index % per_matrix / column_panels * panels.rows;
        const std::int64_t column = index % per_matrix % column_panels * panels.columns;
        const MatrixOperand c = matrix(context, out, false, which);
        Product product;
        product.rows = std::min(panels.rows, rows - row);
        product.columns = std::min(panels.columns, columns - column);
        product.inner = inner;
        product.a = from_row(matrix(context, operation.a, operation.transpose_a, which), row);
        product.b = from_column(matrix(context, operation.b, operation.transpose_b, which), column);
        product.c = const_cast<float*>(c.data) + row * c.stride + column;
        product.c_stride = c.stride;
        product.alpha = operation.alpha;
        product.beta = operation.beta;
        if (inner == 0 || operation.alpha == 0.0F) {
            scale(product);
        } else {
            context.multiply(product);
        }
        if (bias != nullptr) add_bias(product, bias + column);
    });
}

}  // namespace mfsdp::device::cpu
