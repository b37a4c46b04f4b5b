#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <string_view>

namespace mfsdp::device {

// Value tensors (input, out, weight, bias and the gradients that flow) are float32 or bfloat16, all of one type;
// statistics are float32; the gradients of weight and bias are float32 or bfloat16, one type, rounded once. Such a
// gradient that is an undefined tensor is not wanted and not computed.
//
// The forward operations may add the residual stream on the way: with `residual` defined, sum = input + residual,
// rounded to the values' type, is written and takes the input's place in the formula. All are then dense [n, C]; sum
// may be input or residual.

/// out = (input - mean) * reciprocal_std * weight + bias by rows; variance divides by C; epsilon is added to it.
///
/// out, input [n, C] dense; weight, bias [C]; mean, reciprocal_std [n] (outputs); out may be input.
struct LayerNormForward {
    static constexpr std::string_view kName = "layer_norm_forward";
    Tensor out, mean, reciprocal_std, input, weight, bias;
    float epsilon = 1e-5F;
    Tensor residual{}, sum{};
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// Gradients of LayerNormForward. grad_input is added to if `accumulate_input` (the residual stream), else written.
/// grad_weight, grad_bias [C] are written: sums over rows in blocks of a constant number of rows, in order.
/// grad_input must not alias grad_out.
struct LayerNormBackward {
    static constexpr std::string_view kName = "layer_norm_backward";
    Tensor grad_input, grad_weight, grad_bias, grad_out, input, mean, reciprocal_std, weight;
    bool accumulate_input = false;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out = input * reciprocal_rms * weight by rows; reciprocal_rms = 1 / sqrt(mean of squares + epsilon).
///
/// out, input [n, C], or [n, H, D] to norm each head of a fused buffer; any strides but the last; out may be input
/// weight [C] or [D]; reciprocal_rms [n] or [n, H] dense (output)
struct RmsNormForward {
    static constexpr std::string_view kName = "rms_norm_forward";
    Tensor out, reciprocal_rms, input, weight;
    float epsilon = 1e-6F;
    Tensor residual{}, sum{};
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// Gradients of RmsNormForward, shaped as there; the rest as in LayerNormBackward. grad_input may be the same tensor as
/// grad_out unless it is added to.
struct RmsNormBackward {
    static constexpr std::string_view kName = "rms_norm_backward";
    Tensor grad_input, grad_weight, grad_out, input, reciprocal_rms, weight;
    bool accumulate_input = false;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
