#pragma once

#include <cstdint>

namespace mfsdp::device::cpu {

/// A matrix in memory: row-major with `stride` elements between rows, read as its transpose where asked.
struct MatrixOperand {
    const float* data = nullptr;
    std::int64_t stride = 0;
    bool transposed = false;
};

/// c = alpha * a b + beta * c with a [rows, inner], b [inner, columns], c [rows, columns]; beta = 0 overwrites c.
/// rows, columns, inner >= 1.
struct Product {
    std::int64_t rows = 0, columns = 0, inner = 0;
    MatrixOperand a, b;
    float* c = nullptr;
    std::int64_t c_stride = 0;
    float alpha = 1.0F, beta = 0.0F;
};

using Multiply = void(const Product&);

/// The product by our own packed and tiled loops, on the calling thread. An element of c has the same bits wherever it
/// lies in c, and on every processor with the instructions this program was compiled for.
void multiply_by_own_kernel(const Product& product);

/// The product by oneDNN, on the calling thread alone. InternalError if this program was built without it.
void multiply_by_onednn(const Product& product);
[[nodiscard]] bool has_onednn();

}  // namespace mfsdp::device::cpu
