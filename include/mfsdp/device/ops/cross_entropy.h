#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <cstdint>
#include <string_view>

namespace mfsdp::device {

/// Rows of the vocabulary that are added to log Z at a time, whatever the shape: the head may later be gathered in
/// panels of this many rows without changing a bit.
inline constexpr std::int64_t kVocabularyPanelRows = 4096;
/// Target of a position that does not count (Hugging Face's ignore_index).
inline constexpr std::int32_t kIgnoredTarget = -100;

/// Folds one vocabulary panel of logits into the running maximum and sum of exponentials of each token:
/// maximum' = max(maximum, max of row); sum' = sum * exp(maximum - maximum') + sum over row of exp(logit - maximum').
/// The panel that holds a token's target writes target_logit; that of an ignored target is 0, written by the first.
///
/// logits [n, panel] float32, strided rows; maximum, sum, target_logit [n] float32; targets [n] int32 (a row of the
/// whole vocabulary or kIgnoredTarget); panel_begin = index of the first row of this panel. `first` starts from
/// nothing. Within a panel the sum runs over blocks of a constant number of columns, in order.
struct LogSumExpUpdate {
    static constexpr std::string_view kName = "log_sum_exp_update";
    Tensor maximum, sum, target_logit, logits, targets;
    std::int64_t panel_begin = 0;
    bool first = false;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// From what LogSumExpUpdate left after the last panel, log Z[i] = maximum[i] + log(sum[i]):
/// loss_sum [1] float64 = sum of log Z[i] - target_logit[i], each rounded to float32 once; target_count [1] int64 =
/// number of targets that count; log_z_squares [1] float64 = sum of (log Z[i])^2. Ignored targets give nothing. Sums
/// run in order of i, in blocks of a constant number of tokens.
///
/// maximum, sum, target_logit [n] float32; targets [n] int32.
struct LossSum {
    static constexpr std::string_view kName = "loss_sum";
    Tensor loss_sum, target_count, log_z_squares, maximum, sum, target_logit, targets;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// The gradient of (sum of losses + z_loss * sum of (log Z)^2) with respect to one panel of logits:
/// grad = p (1 + 2 z_loss log Z) - [column is the target], p = exp(logit - maximum) / sum; 0 for ignored targets.
///
/// grad [n, panel] float32 or bfloat16, strided rows, may be the same tensor as logits if it is float32; logits
/// [n, panel] float32, strided rows; maximum, sum [n]; targets and panel_begin as in LogSumExpUpdate.
struct CrossEntropyBackward {
    static constexpr std::string_view kName = "cross_entropy_backward";
    Tensor grad, logits, maximum, sum, targets;
    std::int64_t panel_begin = 0;
    float z_loss = 0.0F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
