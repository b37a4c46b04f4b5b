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
///
/// logits [n, panel] strided rows; maximum, sum [n] float32. `first` starts from nothing. Within a panel the sum runs
/// over blocks of a constant number of columns, in order.
struct LogSumExpUpdate {
    static constexpr std::string_view kName = "log_sum_exp_update";
    Tensor maximum, sum, logits;
    bool first = false;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// From final maximum and sum: logits become d(sum of losses)/d(logits), and loss[i] is written by the panel that
/// holds the target: loss = maximum + log(sum) - logit[target]. Ignored targets give zero gradient; their loss is
/// written as 0 by the panel with panel_begin = 0.
///
/// logits [n, panel] strided rows, in place; loss, maximum, sum [n]; targets [n] int32 (a row of the whole vocabulary
/// or kIgnoredTarget); panel_begin = index of the first row of this panel.
struct CrossEntropyBackward {
    static constexpr std::string_view kName = "cross_entropy_backward";
    Tensor logits, loss, maximum, sum, targets;
    std::int64_t panel_begin = 0;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// loss_sum [1] float64 = sum of loss[i], target_count [1] int64 = number of targets that count; both in order of i,
/// in blocks of a constant number of tokens.
struct LossSum {
    static constexpr std::string_view kName = "loss_sum";
    Tensor loss_sum, target_count, loss, targets;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
