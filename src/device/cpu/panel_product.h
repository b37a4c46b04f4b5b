#pragma once

#include "device/cpu/element.h"
#include "device/cpu/kernels.h"
#include "device/cpu/product.h"
#include "device/cpu/scratch.h"

#include <cstdint>
#include <tuple>
#include <type_traits>

namespace mfsdp::device::cpu {

/// One matrix of a batch. A matrix of one row may have any stride, one that is too small is refused by oneDNN.
template <class T>
[[nodiscard]] Result<T> matrix(const Context& context, const Tensor& tensor, std::int64_t index) {
    const auto last = static_cast<std::size_t>(tensor.rank - 1);
    const std::int64_t stride = tensor.shape[last - 1] <= 1 ? tensor.shape[last] : tensor.strides[last - 1];
    return {context.data<T>(tensor) + (tensor.rank == 3 ? index * tensor.strides[0] : 0), stride};
}

/// An operand from row `row` and column `column` of the matrix that is multiplied.
template <class T>
[[nodiscard]] MatrixOperand<T> operand(const Context& context, const Tensor& tensor, bool transposed,
                                       std::int64_t index, std::int64_t row, std::int64_t column) {
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

/// Names the scratch of multiply_by_steps.
struct StepSumsUse {};

/// A panel by a library, or one without anything to multiply. An out of 16 bits is summed in scratch and rounded from
/// there.
template <class T, class To>
void multiply_by_steps(Multiply<T>* multiply, const Product<T>& product, const Result<To>& out, const float* bias) {
    constexpr bool kRounds = !std::is_same_v<To, float>;
    const std::int64_t rows = product.rows, columns = product.columns;
    Result<float> sums{nullptr, columns};
    if constexpr (kRounds) {
        sums.data = thread_scratch<float, StepSumsUse>(rows * columns);
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

/// One panel by whoever multiplies elements of this type: out = product + bias [columns] in every row (or null).
template <class T, class To>
void multiply_panel(const Context& context, const Product<T>& product, const Result<To>& out, const float* bias) {
    Multiply<T>* const library = std::get<Multiply<T>*>(context.products);
    if (library != nullptr || product.inner == 0 || product.alpha == 0.0F) {
        multiply_by_steps(library, product, out, bias);
    } else {
        multiply_by_own_kernel(product, out, bias);
    }
}

}  // namespace mfsdp::device::cpu
