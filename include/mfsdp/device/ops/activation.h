#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <string_view>

namespace mfsdp::device {

// Values of each operation have one type, float32 or bfloat16; arithmetic is float32, results are rounded once.

/// out = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), dense, out may alias in. (Hugging Face gelu_new.)
struct GeluForward {
    static constexpr std::string_view kName = "gelu_forward";
    Tensor out, in;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// grad_in = grad_out * gelu'(in); grad_in may alias grad_out.
struct GeluBackward {
    static constexpr std::string_view kName = "gelu_backward";
    Tensor grad_in, grad_out, in;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out = silu(gate) * up, silu(x) = x / (1 + exp(-x)); dense, same shape; out may alias either.
struct SwiGluForward {
    static constexpr std::string_view kName = "swiglu_forward";
    Tensor out, gate, up;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// grad_gate, grad_up of SwiGluForward; either may alias grad_out.
struct SwiGluBackward {
    static constexpr std::string_view kName = "swiglu_backward";
    Tensor grad_gate, grad_up, grad_out, gate, up;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out[c] = sum over rows of in[r, c] (a bias gradient), in blocks of a constant number of rows, in order.
/// in [m, n] float32 or bfloat16 with strided rows, out [n] float32 or bfloat16, rounded once. Nothing is done if out
/// is undefined.
struct ColumnSum {
    static constexpr std::string_view kName = "column_sum";
    Tensor out, in;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
