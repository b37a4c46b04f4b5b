#pragma once

#include "mfsdp/device/half.h"

#include <cstdint>
#include <limits>
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

/// alpha * a b + beta * result with a [rows, inner], b [inner, columns], result [rows, columns]; beta = 0 overwrites
/// the result. Sums are float32 whatever T is. rows, columns, inner >= 1.
template <class T>
struct Product {
    std::int64_t rows = 0, columns = 0, inner = 0;
    MatrixOperand<T> a, b;
    float alpha = 1.0F, beta = 0.0F;
    /// Element (row, column) of c is wanted where column >= row + diagonal. What lies below may be written or left out.
    static constexpr std::int64_t kWhole = std::numeric_limits<std::int64_t>::min() / 2;
    std::int64_t diagonal = kWhole;
};

template <class T>
struct Result {
    T* data = nullptr;
    std::int64_t stride = 0;
};

/// The product by our own packed and tiled loops, on the calling thread, plus `bias` [columns] in every row (or null);
/// elements of 16 bits are widened as they are packed, and a result of 16 bits is rounded as it is stored. An element
/// has the same bits wherever it lies in the result, and on every processor with the instructions this program was
/// compiled for. T and To are float, BFloat16 or Float16.
template <class T, class To>
void multiply_by_own_kernel(const Product<T>& product, const Result<To>& result, const float* bias);

/// A product by a library, on the calling thread.
template <class T>
using Multiply = void(const Product<T>&, const Result<float>&);
/// Who computes products of which type: null is our own kernel. Chosen once, by processor and library.
using LibraryProducts = std::tuple<Multiply<float>*, Multiply<BFloat16>*, Multiply<Float16>*>;

/// The product by oneDNN, on the calling thread alone. InternalError if this program was built without it.
void multiply_by_onednn(const Product<float>& product, const Result<float>& result);
[[nodiscard]] bool has_onednn();
/// The same by oneDNN's product of any types, for T = float and BFloat16; DeviceError if the library refuses it.
template <class T>
void multiply_by_onednn_primitive(const Product<T>& product, const Result<float>& result);
/// Whether oneDNN multiplies bfloat16 with instructions made for it: the processor has them and the library too.
[[nodiscard]] bool has_onednn_bfloat16();

}  // namespace mfsdp::device::cpu
