#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <string_view>

namespace mfsdp::device {

/// out = beta * out + alpha * op(a) op(b) + bias, op = transpose where asked.
///
/// out   [m, n] or [batch, m, n]; not aliased with a or b; columns contiguous, rows and batch strided
/// a     [m, k] (or [k, m] transposed), b [k, n] (or [n, k] transposed), with the same batch
/// bias  [n] float32 or bfloat16, or undefined, added to every row
/// gelu  undefined, or as out, float32 or bfloat16, its rows strided on their own, apart from all others: gets
///       GeluForward's function of what out gets, taken before or after out is rounded, as it suits the backend. Only
///       of a single product, and with beta = 0.
/// a and b are float32, bfloat16 or float16, both the same; out is one of them, independently. Sums, beta * out and the
/// bias are float32; an out of 16 bits is rounded once, at the end. beta = 0 overwrites out, whatever it holds (NaN
/// too). The product is cut into panels by its shape alone and each panel is computed by one thread: the same bits for
/// any number of threads, and for a batch as for single calls.
struct Matmul {
    static constexpr std::string_view kName = "matmul";
    Tensor out, a, b;
    bool transpose_a = false;
    bool transpose_b = false;
    float alpha = 1.0F;
    float beta = 0.0F;
    Tensor bias{};
    Tensor gelu{};

    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
