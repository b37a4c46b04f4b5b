#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace mfsdp::device {

/// Gradients are sums over targets; the owner multiplies them by 1/targets and then by the clip factor, each product
/// rounded to float32 once, in this order: g = (sum * inverse_targets) * clip.
struct GradientScale {
    float inverse_targets = 1.0F;
    float clip = 1.0F;
};

/// At most so many tensors in one AdamWStep.
inline constexpr std::int64_t kMaxAdamWTasks = 32;

/// AdamW of docs/optimizers.md, elementwise, of `count` parameters at once (a model has many small ones):
///   W = decay W;  m = m + one_minus_beta1 (g - m);  v = beta2 v + one_minus_beta2 g^2
///   W = W - step_size * m / (sqrt(v) / root_correction + epsilon)
/// decay = 1 - lr*wd, step_size = lr / (1 - beta1^t), root_correction = sqrt(1 - beta2^t), in double, rounded once.
/// The tensors of a task are float32, dense, of one count.
struct AdamWStep {
    static constexpr std::string_view kName = "adamw_step";
    struct Task {
        Tensor weight, exp_avg, exp_avg_sq, gradient;
        float decay = 1.0F, step_size = 0.0F;
    };
    std::array<Task, kMaxAdamWTasks> tasks{};
    std::int64_t count = 0;
    GradientScale scale{};
    float one_minus_beta1 = 0.1F, beta2 = 0.95F, one_minus_beta2 = 0.05F;
    float root_correction = 1.0F, epsilon = 1e-8F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// Elements of one partial sum of squares, in a row or column of a matrix. Part of the definition of every operation
/// that sums squares: in double, by blocks of so many elements, blocks in order.
inline constexpr std::int64_t kSquareSumBlock = 1024;

/// Sums of squares of a row or column of `length` elements.
[[nodiscard]] constexpr std::int64_t square_sums_of(std::int64_t length) {
    return (length + kSquareSumBlock - 1) / kSquareSumBlock;
}

/// Momentum of docs/optimizers.md, Muon, g = scaled gradient:
///   momentum = beta momentum + gradient_factor g            (ema: gradient_factor = 1 - beta; heavy_ball: 1)
///   update   = nesterov ? gradient_factor g + beta momentum : momentum      (with the new momentum)
/// and, while the update is at hand, its sums of squares, where wanted.
///
/// momentum, update, gradient [rows, columns] float32, dense, apart from each other. square_sums: undefined, or as in
/// BlockSquareSums.
struct MomentumUpdate {
    static constexpr std::string_view kName = "momentum_update";
    Tensor momentum, update, gradient;
    Tensor square_sums{};
    bool by_columns = false;
    GradientScale scale{};
    float beta = 0.95F, gradient_factor = 0.05F;
    bool nesterov = true;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// square_sums = sums of squares of in [rows, columns] float32, strided rows: of its rows,
/// [rows, square_sums_of(columns)] float64, dense, or by_columns, [columns, square_sums_of(rows)]: the sums of a matrix
/// by columns are, to the bit, those of its transpose by rows.
struct BlockSquareSums {
    static constexpr std::string_view kName = "block_square_sums";
    Tensor square_sums, in;
    bool by_columns = false;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// norm [1] float64 = root of the sum of square_sums [n, m] float64, dense, those of one row or column in order first.
struct NormOfSquareSums {
    static constexpr std::string_view kName = "norm_of_square_sums";
    Tensor norm, square_sums;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// norm [1] float64 = Frobenius norm of in [rows, columns] (strided rows), float32, bfloat16 or float16:
/// BlockSquareSums and NormOfSquareSums, to the bit.
struct FrobeniusNorm {
    static constexpr std::string_view kName = "frobenius_norm";
    Tensor norm, in;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// out = in / norm, or 0 everywhere where norm is 0. norm [1] float64 on the device (rounded to float32 before the
/// division; a norm outside float32's normal range divides in double). in float32, out float32, bfloat16 or float16
/// (the quotient in float32, rounded), [rows, columns], strided rows; out may be in if it is float32. With `transposed`
/// out is [columns, rows] and apart from in.
struct DivideByNorm {
    static constexpr std::string_view kName = "divide_by_norm";
    Tensor out, in, norm;
    bool transposed = false;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// weight = decay weight - step direction, [rows, columns] with strided rows: the first product is rounded, then
/// fma(-step, direction, decay weight). weight float32, direction float32, bfloat16 or float16.
struct WeightUpdate {
    static constexpr std::string_view kName = "weight_update";
    Tensor weight, direction;
    float decay = 1.0F, step = 0.0F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// Adds the sum of squares of each row of in to an exact fixed-point sum (mfsdp/base/exact_sum.h): within a row in
/// double, in blocks of a constant number of elements, in order; row sums exactly. So the result has the same bits
/// however rows are spread over ranks.
///
/// words [ExactSum::kWords + 1] int64, added to; the last one counts rows with a non-finite sum, which are not added.
/// in [rows, columns] float32, strided rows; a 1-D tensor is one row.
struct SquareSum {
    static constexpr std::string_view kName = "square_sum";
    Tensor words, in;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
