#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/ops/optimizer.h"
#include "mfsdp/device/tensor.h"

#include <string_view>

namespace mfsdp::device {

// Elementwise work of Shampoo and SOAP. All float32, dense, same count; g is the scaled gradient (GradientScale).

/// out = g. out may be gradient.
struct ScaleGradient {
    static constexpr std::string_view kName = "scale_gradient";
    Tensor out, gradient;
    GradientScale scale{};
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out = g;  momentum = beta1 momentum + one_minus_beta1 g;  square = beta2 square + square_factor g^2.
/// `square` undefined: it is left out. Apart from each other.
struct GraftMoments {
    static constexpr std::string_view kName = "graft_moments";
    Tensor out, momentum, square, gradient;
    GradientScale scale{};
    float beta1 = 0.9F, one_minus_beta1 = 0.1F, beta2 = 0.95F, square_factor = 0.05F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// average = momentum / correction;  graft = average / (sqrt(square) / root_correction + epsilon).
/// `graft` and `square` undefined: only the average. correction = 1 - beta1^t, root_correction = sqrt(1 - beta2^t), in
/// double, rounded once. average may be momentum, else apart from each other.
struct GraftDirection {
    static constexpr std::string_view kName = "graft_direction";
    Tensor average, graft, momentum, square;
    float correction = 1.0F, root_correction = 1.0F, epsilon = 1e-8F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// Adam in an eigenbasis, `gradient` being in it already:
///   exp_avg = beta1 exp_avg + one_minus_beta1 gradient;  exp_avg_sq = beta2 exp_avg_sq + one_minus_beta2 gradient^2
///   out = (exp_avg / correction) / (sqrt(exp_avg_sq) / root_correction + epsilon)
/// out may be gradient, else apart from each other.
struct EigenbasisMoments {
    static constexpr std::string_view kName = "eigenbasis_moments";
    Tensor out, exp_avg, exp_avg_sq, gradient;
    float beta1 = 0.95F, one_minus_beta1 = 0.05F, beta2 = 0.95F, one_minus_beta2 = 0.05F;
    float correction = 1.0F, root_correction = 1.0F, epsilon = 1e-8F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
