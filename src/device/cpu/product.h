#pragma once

#include "mfsdp/device/half.h"

#include <cstdint>
#include <tuple>

namespace mfsdp::device::cpu {

/// A matrix in memory: row-major with `stride` elements between rows, read as its transpose where asked. T is float,
/// BFloat16 or Float16.
template <class T>
struct MatrixOperand {
    const T* data = nullptr;
    std::int64_t stride = 0;
    bool transposed = false;
};

/// c = alpha * a b + beta * c with a [rows, inner], b [inner, columns], c [rows, columns]; beta = 0 overwrites c.
/// Sums are float32 whatever T is. rows, columns, inner >= 1.
template <class T>
struct Product {
    std::int64_t rows = 0, columns = 0, inner = 0;
    MatrixOperand<T> a, b;
    float* c = nullptr;
    std::int64_t c_stride = 0;
    float alpha = 1.0F, beta = 0.0F;
};

template <class T>
using Multiply = void(const Product<T>&);

/// The product by our own packed and tiled loops, on the calling thread; elements of 16 bits are widened as they are
/// packed. An element of c has the same bits wherever it lies in c, and on every processor with the instructions this
/// program was compiled for. For float, BFloat16 and Float16.
template <class T>
void multiply_by_own_kernel(const Product<T>& product);

/// The product by oneDNN, on the calling thread alone. InternalError if this program was built without it.
void multiply_by_onednn(const Product<float>& product);
[[nodiscard]] bool has_onednn();
/// The same by oneDNN's product of any types, for T = float and BFloat16; DeviceError if the library refuses it.
template <class T>
void multiply_by_onednn_primitive(const Product<T>& product);
/// Whether oneDNN multiplies bfloat16 with instructions made for it: the processor has them and the library too.
[[nodiscard]] bool has_onednn_bfloat16();

/// Who computes products of which type: chosen once, by processor and library.
using Products = std::tuple<Multiply<float>*, Multiply<BFloat16>*, Multiply<Float16>*>;
[[nodiscard]] inline Products own_products() {
    return {&multiply_by_own_kernel<float>, &multiply_by_own_kernel<BFloat16>, &multiply_by_own_kernel<Float16>};
}

}  // namespace mfsdp::device::cpu
