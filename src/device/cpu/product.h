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

/// The product by our own loops, on the calling thread. An element of c has the same bits wherever it lies in c.
void multiply_plainly(const Product& product);

/// The product by oneDNN where this program has it, else by our own loops; on the calling thread alone.
void multiply(const Product& product);

}  // namespace mfsdp::device::cpu
