#include "mfsdp/device/ops/norm.h"

#include "mfsdp/base/error.h"

#include "device/ops/require.h"

#include <string>

namespace mfsdp::device {

namespace {

/// Checks `argument` to be a float32 vector of `size` elements.
void require_vector(const Argument& argument, std::int64_t size) {
    require_shape(argument, DType::float32, {size});
    require_dense(argument);
}

void require_epsilon(std::string_view operation, float epsilon) {
    MFSDP_ASSERT(epsilon >= 0.0F, std::string(operation) + ": epsilon is " + std::to_string(epsilon) + ", wanted >= 0");
}

/// Checks `input` to be rows of at least one column; a mean over nothing has no value.
void require_rows(const Argument& input) {
    require_rank(input, DType::float32, 2);
    MFSDP_ASSERT(input.tensor.shape[1] >= 1, std::string(input.operation) + ": " + std::string(input.name) + " is " +
                                                 input.tensor.describe() + ", wanted at least one column");
    require_contiguous_columns(input);
}

void require_like(const Argument& argument, const Tensor& input) {
    require_shape(argument, DType::float32, {input.shape[0], input.shape[1]});
    require_contiguous_columns(argument);
}

}  // namespace

void LayerNormForward::check() const {
    require_rows({kName, "input", input});
    require_like({kName, "out", out}, input);
    require_dense({kName, "input", input});
    require_dense({kName, "out", out});
    require_vector({kName, "weight", weight}, input.shape[1]);
    require_vector({kName, "bias", bias}, input.shape[1]);
    require_vector({kName, "mean", mean}, input.shape[0]);
    require_vector({kName, "reciprocal_std", reciprocal_std}, input.shape[0]);
    require_epsilon(kName, epsilon);
}

Cost LayerNormForward::cost() const {
    return {8 * input.count(), 2 * input.bytes() + 2 * weight.bytes() + 2 * mean.bytes()};
}

void LayerNormBackward::check() const {
    require_rows({kName, "input", input});
    require_like({kName, "grad_out", grad_out}, input);
    require_like({kName, "grad_input", grad_input}, input);
    require_dense({kName, "input", input});
    require_dense({kName, "grad_out", grad_out});
    require_dense({kName, "grad_input", grad_input});
    require_vector({kName, "weight", weight}, input.shape[1]);
    require_vector({kName, "grad_weight", grad_weight}, input.shape[1]);
    require_vector({kName, "grad_bias", grad_bias}, input.shape[1]);
    require_vector({kName, "mean", mean}, input.shape[0]);
    require_vector({kName, "reciprocal_std", reciprocal_std}, input.shape[0]);
    require_apart({kName, "grad_input", grad_input}, {kName, "grad_out", grad_out});
}

Cost LayerNormBackward::cost() const {
    const std::int64_t accumulated = accumulate_input ? input.bytes() : 0;
    return {18 * input.count(), 5 * input.bytes() + accumulated + 3 * weight.bytes() + 4 * mean.bytes()};
}

void RmsNormForward::check() const {
    require_rows({kName, "input", input});
    require_like({kName, "out", out}, input);
    require_vector({kName, "weight", weight}, input.shape[1]);
    require_vector({kName, "reciprocal_rms", reciprocal_rms}, input.shape[0]);
    require_epsilon(kName, epsilon);
}

Cost RmsNormForward::cost() const {
    return {4 * input.count(), 2 * input.bytes() + weight.bytes() + reciprocal_rms.bytes()};
}

void RmsNormBackward::check() const {
    require_rows({kName, "input", input});
    require_like({kName, "grad_out", grad_out}, input);
    require_like({kName, "grad_input", grad_input}, input);
    require_vector({kName, "weight", weight}, input.shape[1]);
    require_vector({kName, "grad_weight", grad_weight}, input.shape[1]);
    require_vector({kName, "reciprocal_rms", reciprocal_rms}, input.shape[0]);
    require_apart({kName, "grad_input", grad_input}, {kName, "grad_out", grad_out});
}

Cost RmsNormBackward::cost() const {
    const std::int64_t accumulated = accumulate_input ? input.bytes() : 0;
    return {12 * input.count(), 5 * input.bytes() + accumulated + 2 * weight.bytes() + 2 * reciprocal_rms.bytes()};
}

}  // namespace mfsdp::device
