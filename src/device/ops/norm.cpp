#include "mfsdp/device/ops/norm.h"

#include "mfsdp/base/error.h"

#include "device/ops/require.h"

#include <string>

namespace mfsdp::device {

namespace {

/// Checks `argument` to be a dense vector of `size` elements.
void require_vector(const Argument& argument, DType dtype, std::int64_t size) {
    require_shape(argument, dtype, {size});
    require_dense(argument);
}

/// The gradient of a weight or bias: undefined, or a vector of a type of its own.
void require_parameter_gradient(const Argument& argument, std::int64_t size) {
    if (!argument.tensor.defined()) return;
    require_type(argument, kValueTypes);
    require_vector(argument, argument.tensor.dtype, size);
}

void require_epsilon(std::string_view operation, float epsilon) {
    MFSDP_ASSERT(epsilon >= 0.0F, std::string(operation) + ": epsilon is " + std::to_string(epsilon) + ", wanted >= 0");
}

/// Checks `input` to be rows of at least one column; a mean over nothing has no value.
void require_rows(const Argument& input, int rank) {
    require_type(input, kValueTypes);
    require_rank(input, input.tensor.dtype, rank);
    MFSDP_ASSERT(input.tensor.columns() >= 1, std::string(input.operation) + ": " + std::string(input.name) + " is " +
                                                  input.tensor.describe() + ", wanted at least one column");
    require_contiguous_columns(input);
}

void require_like(const Argument& argument, const Argument& input) {
    require_same_type(argument, input);
    require_rank(argument, input.tensor.dtype, input.tensor.rank);
    MFSDP_ASSERT(same_shape(argument.tensor, input.tensor),
                 std::string(argument.operation) + ": " + std::string(argument.name) + " is " +
                     argument.tensor.describe() + ", wanted the shape of " + input.tensor.describe());
    require_contiguous_columns(argument);
}

/// Statistics of RmsNorm: one for each row of `input`, shaped like its rows.
void require_row_statistics(const Argument& argument, const Tensor& input) {
    if (input.rank == 3) {
        require_shape(argument, DType::float32, {input.shape[0], input.shape[1]});
    } else {
        require_shape(argument, DType::float32, {input.shape[0]});
    }
    require_dense(argument);
}

std::int64_t bytes_if_defined(const Tensor& tensor) { return tensor.defined() ? tensor.bytes() : 0; }

/// The residual stream of a forward operation, if it has one.
template <class Op>
void require_residual(const Op& operation) {
    MFSDP_ASSERT(operation.residual.defined() == operation.sum.defined(),
                 std::string(Op::kName) + ": residual and sum are defined both or neither");
    if (!operation.residual.defined()) return;
    const Argument input{Op::kName, "input", operation.input}, sum{Op::kName, "sum", operation.sum};
    require_rank(input, operation.input.dtype, 2);
    require_dense(input);
    for (const Argument& argument : {Argument{Op::kName, "residual", operation.residual}, sum}) {
        require_like(argument, input);
        require_dense(argument);
        require_apart({Op::kName, "out", operation.out}, argument);
    }
}

/// What the sum with a residual stream costs beside the norm: an addition, one tensor read and one written.
Cost with_residual(Cost norm, const Tensor& residual) {
    return {norm.flops + (residual.defined() ? residual.count() : 0), norm.bytes + 2 * bytes_if_defined(residual)};
}

int rms_norm_rank(const Tensor& input) { return input.rank == 3 ? 3 : 2; }

}  // namespace

void LayerNormForward::check() const {
    require_rows({kName, "input", input}, 2);
    require_like({kName, "out", out}, {kName, "input", input});
    require_dense({kName, "input", input});
    require_dense({kName, "out", out});
    require_vector({kName, "weight", weight}, input.dtype, input.shape[1]);
    require_vector({kName, "bias", bias}, input.dtype, input.shape[1]);
    require_vector({kName, "mean", mean}, DType::float32, input.shape[0]);
    require_vector({kName, "reciprocal_std", reciprocal_std}, DType::float32, input.shape[0]);
    require_epsilon(kName, epsilon);
    require_residual(*this);
}

Cost LayerNormForward::cost() const {
    return with_residual({8 * input.count(), 2 * input.bytes() + 2 * weight.bytes() + 2 * mean.bytes()}, residual);
}

void LayerNormBackward::check() const {
    require_rows({kName, "input", input}, 2);
    require_like({kName, "grad_out", grad_out}, {kName, "input", input});
    require_like({kName, "grad_input", grad_input}, {kName, "input", input});
    require_dense({kName, "input", input});
    require_dense({kName, "grad_out", grad_out});
    require_dense({kName, "grad_input", grad_input});
    require_vector({kName, "weight", weight}, input.dtype, input.shape[1]);
    require_parameter_gradient({kName, "grad_weight", grad_weight}, input.shape[1]);
    require_parameter_gradient({kName, "grad_bias", grad_bias}, input.shape[1]);
    require_vector({kName, "mean", mean}, DType::float32, input.shape[0]);
    require_vector({kName, "reciprocal_std", reciprocal_std}, DType::float32, input.shape[0]);
    require_apart({kName, "grad_input", grad_input}, {kName, "grad_out", grad_out});
    if (!grad_weight.defined() || !grad_bias.defined()) return;
    require_same_type({kName, "grad_bias", grad_bias}, {kName, "grad_weight", grad_weight});
    require_apart({kName, "grad_bias", grad_bias}, {kName, "grad_weight", grad_weight});
}

Cost LayerNormBackward::cost() const {
    // The sums over columns read grad_out and the input a first time.
    const bool sums = grad_weight.defined() || grad_bias.defined();
    const std::int64_t values = (sums ? 5 : 3) + (accumulate_input ? 1 : 0);
    return {(sums ? 18 : 14) * input.count(), values * input.bytes() + weight.bytes() + bytes_if_defined(grad_weight) +
                                                  bytes_if_defined(grad_bias) + (sums ? 4 : 2) * mean.bytes()};
}

void RmsNormForward::check() const {
    require_rows({kName, "input", input}, rms_norm_rank(input));
    require_like({kName, "out", out}, {kName, "input", input});
    require_vector({kName, "weight", weight}, input.dtype, input.columns());
    require_row_statistics({kName, "reciprocal_rms", reciprocal_rms}, input);
    require_epsilon(kName, epsilon);
    require_residual(*this);
}

Cost RmsNormForward::cost() const {
    return with_residual({4 * input.count(), 2 * input.bytes() + weight.bytes() + reciprocal_rms.bytes()}, residual);
}

void RmsNormBackward::check() const {
    require_rows({kName, "input", input}, rms_norm_rank(input));
    require_like({kName, "grad_out", grad_out}, {kName, "input", input});
    require_like({kName, "grad_input", grad_input}, {kName, "input", input});
    require_vector({kName, "weight", weight}, input.dtype, input.columns());
    require_parameter_gradient({kName, "grad_weight", grad_weight}, input.columns());
    require_row_statistics({kName, "reciprocal_rms", reciprocal_rms}, input);
    if (accumulate_input || grad_input.strides != grad_out.strides) {
        require_apart({kName, "grad_input", grad_input}, {kName, "grad_out", grad_out});
    }
}

Cost RmsNormBackward::cost() const {
    const bool sums = grad_weight.defined();
    const std::int64_t values = (sums ? 5 : 3) + (accumulate_input ? 1 : 0);
    return {(sums ? 12 : 9) * input.count(), values * input.bytes() + weight.bytes() + bytes_if_defined(grad_weight) +
                                                 (sums ? 2 : 1) * reciprocal_rms.bytes()};
}

}  // namespace mfsdp::device
