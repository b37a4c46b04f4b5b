#include "mfsdp/device/ops/cross_entropy.h"

#include "mfsdp/base/error.h"

#include "device/ops/require.h"

#include <cmath>
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

void require_panel_begin(std::string_view operation, std::int64_t panel_begin) {
    MFSDP_ASSERT(panel_begin >= 0,
                 std::string(operation) + ": panel_begin is " + std::to_string(panel_begin) + ", wanted >= 0");
}

}  // namespace

void LogSumExpUpdate::check() const {
    require_panel({kName, "logits", logits});
    const Argument written[] = {
        {kName, "maximum", maximum}, {kName, "sum", sum}, {kName, "target_logit", target_logit}};
    for (const Argument& argument : written) {
        require_tokens(argument, DType::float32, logits.shape[0]);
        for (const Argument& other : written) {
            if (&other != &argument) require_apart(argument, other);
        }
    }
    require_tokens({kName, "targets", targets}, DType::int32, logits.shape[0]);
    require_panel_begin(kName, panel_begin);
}

Cost LogSumExpUpdate::cost() const {
    return {4 * logits.count(),
            logits.bytes() + 2 * (maximum.bytes() + sum.bytes() + target_logit.bytes()) + targets.bytes()};
}

void LossSum::check() const {
    require_shape({kName, "loss_sum", loss_sum}, DType::float64, {1});
    require_shape({kName, "target_count", target_count}, DType::int64, {1});
    require_shape({kName, "log_z_squares", log_z_squares}, DType::float64, {1});
    require_apart({kName, "loss_sum", loss_sum}, {kName, "log_z_squares", log_z_squares});
    require_rank({kName, "maximum", maximum}, DType::float32, 1);
    const std::int64_t tokens = maximum.shape[0];
    require_tokens({kName, "maximum", maximum}, DType::float32, tokens);
    require_tokens({kName, "sum", sum}, DType::float32, tokens);
    require_tokens({kName, "target_logit", target_logit}, DType::float32, tokens);
    require_tokens({kName, "targets", targets}, DType::int32, tokens);
}

Cost LossSum::cost() const {
    // A logarithm once for each token is about 40 operations on most machines.
    return {45 * maximum.count(), maximum.bytes() + sum.bytes() + target_logit.bytes() + targets.bytes() +
                                      loss_sum.bytes() + target_count.bytes() + log_z_squares.bytes()};
}

void CrossEntropyBackward::check() const {
    require_panel({kName, "logits", logits});
    const std::int64_t tokens = logits.shape[0];
    require_type({kName, "grad", grad}, kValueTypes);
    require_shape({kName, "grad", grad}, grad.dtype, {tokens, logits.shape[1]});
    require_contiguous_columns({kName, "grad", grad});
    if (grad.dtype != logits.dtype || grad.strides[0] != logits.strides[0]) {
        require_apart({kName, "grad", grad}, {kName, "logits", logits});
    }
    require_tokens({kName, "maximum", maximum}, DType::float32, tokens);
    require_tokens({kName, "sum", sum}, DType::float32, tokens);
    require_tokens({kName, "targets", targets}, DType::int32, tokens);
    require_panel_begin(kName, panel_begin);
    MFSDP_ASSERT(std::isfinite(z_loss) && z_loss >= 0.0F,
                 std::string(kName) + ": z_loss is " + std::to_string(z_loss) + ", wanted a number >= 0");
}

Cost CrossEntropyBackward::cost() const {
    return {3 * logits.count(), logits.bytes() + grad.bytes() + maximum.bytes() + sum.bytes() + targets.bytes()};
}

}  // namespace mfsdp::device
