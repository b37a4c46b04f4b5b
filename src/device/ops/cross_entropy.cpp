#include "mfsdp/device/ops/cross_entropy.h"

#include "mfsdp/base/error.h"

#include "device/ops/require.h"

#include <string>

namespace mfsdp::device {

namespace {

void require_tokens(const Argument& argument, DType dtype, std::int64_t tokens) {
    require_shape(argument, dtype, {tokens});
    require_dense(argument);
}

void require_panel(const Argument& logits) {
    require_rank(logits, DType::float32, 2);
    MFSDP_ASSERT(logits.tensor.shape[1] >= 1, std::string(logits.operation) + ": logits is " +
                                                  logits.tensor.describe() + ", wanted at least one column");
    require_contiguous_columns(logits);
}

}  // namespace

void LogSumExpUpdate::check() const {
    require_panel({kName, "logits", logits});
    require_tokens({kName, "maximum", maximum}, DType::float32, logits.shape[0]);
    require_tokens({kName, "sum", sum}, DType::float32, logits.shape[0]);
    require_apart({kName, "maximum", maximum}, {kName, "sum", sum});
}

Cost LogSumExpUpdate::cost() const {
    return {4 * logits.count(), logits.bytes() + 2 * (maximum.bytes() + sum.bytes())};
}

void CrossEntropyBackward::check() const {
    require_panel({kName, "logits", logits});
    const std::int64_t tokens = logits.shape[0];
    require_tokens({kName, "loss", loss}, DType::float32, tokens);
    require_tokens({kName, "maximum", maximum}, DType::float32, tokens);
    require_tokens({kName, "sum", sum}, DType::float32, tokens);
    require_tokens({kName, "targets", targets}, DType::int32, tokens);
    MFSDP_ASSERT(panel_begin >= 0,
                 std::string(kName) + ": panel_begin is " + std::to_string(panel_begin) + ", wanted >= 0");
    require_apart({kName, "loss", loss}, {kName, "maximum", maximum});
    require_apart({kName, "loss", loss}, {kName, "sum", sum});
}

Cost CrossEntropyBackward::cost() const {
    return {3 * logits.count(), 2 * logits.bytes() + loss.bytes() + maximum.bytes() + sum.bytes() + targets.bytes()};
}

void LossSum::check() const {
    require_shape({kName, "loss_sum", loss_sum}, DType::float64, {1});
    require_shape({kName, "target_count", target_count}, DType::int64, {1});
    require_rank({kName, "loss", loss}, DType::float32, 1);
    require_dense({kName, "loss", loss});
    require_tokens({kName, "targets", targets}, DType::int32, loss.shape[0]);
}

Cost LossSum::cost() const {
    return {loss.count(), loss.bytes() + targets.bytes() + loss_sum.bytes() + target_count.bytes()};
}

}  // namespace mfsdp::device
