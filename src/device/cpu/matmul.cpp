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

/// One matrix of a batch. A matrix of one row may have any stride, one that is too small is refused by oneDNN.
template <class T>
Result<T> matrix(const Context& context, const Tensor& tensor, std::int64_t index) {
    const auto last = static_cast<std::size_t>(tensor.rank - 1);
    const std::int64_t stride = tensor.shape[last - 1] <= 1 ? tensor.shape[last] : tensor.strides[last - 1];
    return {context.data<T>(tensor) + (tensor.rank == 3 ? index * tensor.strides[0] : 0), stride};
}

/// An operand from row `row` and column `column` of the matrix that is multiplied.
template <class T>
MatrixOperand<T> operand(const Context& context, const Tensor& tensor, bool transposed, std::int64_t index,
                         std::int64_t row, std::int64_t column) {
    const Result<const T> whole = matrix<const T>(context, tensor, index);
    const std::int64_t offset = transposed ? column * whole.stride + row : row * whole.stride + column;
    return {whole.data + offset, whole.stride, transposed};
}

/// target (i, lanes) = value(row, i, lanes) for all vectors of all rows.
template <class To, class Value>
void store_rows(const Result<To>& target, std::int64_t rows, std::int64_t columns, const Value& value) {
    for (std::int64_t row = 0; row < rows; ++row) {
        To* const line = target.data + row * target.stride;
        for_vectors(columns,
                    [&](std::int64_t i, std::int64_t lanes) { store_lanes(line + i, value(row, i, lanes), lanes); });
    }
}

struct BiasUse {};
struct SumsUse {};

/// The bias from column `first` on as floats, or null.
const float* panel_bias(const Context& context, const Tensor& bias, std::int64_t first, std::int64_t columns) {
    if (!bias.defined()) return nullptr;
    if (bias.dtype == DType::float32) return context.data<const float>(bias) + first;
    float* const wide = thread_scratch<float, BiasUse>(columns);
    const BFloat16* const source = context.data<const BFloat16>(bias) + first;
    store_rows(Result<float>{wide, columns}, 1, columns,
               [=](std::int64_t, std::int64_t i, std::int64_t lanes) { return load_lanes(source + i, lanes); });
    return wide;
}

/// A panel by a library, or one without anything to multiply. An out of 16 bits is summed in scratch and rounded from
/// there.
template <class T, class To>
void multiply_by_steps(Multiply<T>* multiply, const Product<T>& product, const Result<To>& out, const float* bias) {
    constexpr bool kRounds = !std::is_same_v<To, float>;
    const std::int64_t rows = product.rows, columns = product.columns;
    Result<float> sums{nullptr, columns};
    if constexpr (kRounds) {
        sums.data = thread_scratch<float, SumsUse>(rows * columns);
    } else {
        sums = out;
    }
    const auto from_sums = [&](std::int64_t row, std::int64_t i, std::int64_t lanes) {
        return load_lanes(sums.data + row * sums.stride + i, lanes);
    };
    const auto from_out = [&](std::int64_t row, std::int64_t i, std::int64_t lanes) {
        return load_lanes(out.data + row * out.stride + i, lanes);
    };
    const bool overwrites = product.beta == 0.0F;
    if (product.inner == 0 || product.alpha == 0.0F) {
        const Float8 beta = broadcast(product.beta);
        store_rows(sums, rows, columns, [&](std::int64_t row, std::int64_t i, std::int64_t lanes) {
            return overwrites ? Float8{} : beta * from_out(row, i, lanes);
        });
    } else {
        if (kRounds && !overwrites) store_rows(sums, rows, columns, from_out);
        multiply(product, sums);
    }
    if (bias != nullptr) {
        store_rows(out, rows, columns, [&](std::int64_t row, std::int64_t i, std::int64_t lanes) {
            return from_sums(row, i, lanes) + load_lanes(bias + i, lanes);
        });
    } else if (kRounds) {
        store_rows(out, rows, columns, from_sums);
    }
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
        Result<To> target = matrix<To>(context, out, which);
        target.data += row * target.stride + column;
        Product<T> product;
        product.rows = std::min(panels.rows, rows - row);
        product.columns = std::min(panels.columns, columns - column);
        product.inner = inner;
        product.a = operand<T>(context, operation.a, operation.transpose_a, which, row, 0);
        product.b = operand<T>(context, operation.b, operation.transpose_b, which, 0, column);
        product.alpha = operation.alpha;
        product.beta = operation.beta;
        const float* const bias = panel_bias(context, operation.bias, column, product.columns);
        Multiply<T>* const library = std::get<Multiply<T>*>(context.products);
        if (library != nullptr || inner == 0 || operation.alpha == 0.0F) {
            multiply_by_steps(library, product, target, bias);
        } else {
            multiply_by_own_kernel(product, target, bias);
        }
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
