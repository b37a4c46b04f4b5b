#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <string_view>

namespace mfsdp::device {

/// out = beta * out + alpha * op(a) op(b)^T where that is symmetric: one triangle is computed, the other is its mirror
/// image, so out is symmetric to the bit.
///
/// out  [n, n] or [batch, n, n], not aliased with a or b; where beta is not 0, symmetric before
/// a    [n, k] (or [k, n] with `transpose`, op = transposition), with the same batch
/// b    the same shape, or undefined: b = a, the product of a matrix with its own transpose. With a b of its own the
///      caller knows that the product is symmetric, e.g. that of two commuting symmetric matrices.
/// a and b have one type of float32, bfloat16 and float16, out any of these; sums are float32, rounded once to the type
/// of out. Columns contiguous, rows and batch strided. Elements of the upper triangle have the order of additions of a
/// product cut by the shape alone: the same bits for any number of threads, and for a batch as for single calls.
struct SymmetricProduct {
    static constexpr std::string_view kName = "symmetric_product";
    Tensor out, a;
    Tensor b{};
    bool transpose = false;
    float alpha = 1.0F;
    float beta = 0.0F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out [n, n] += value on the diagonal, rounded to its type: float32, bfloat16 or float16. Rows may be strided.
struct AddToDiagonal {
    static constexpr std::string_view kName = "add_to_diagonal";
    Tensor out;
    float value = 0.0F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out [n, n] = the identity. float32, dense.
struct FillIdentity {
    static constexpr std::string_view kName = "fill_identity";
    Tensor out;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
