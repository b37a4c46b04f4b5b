#include "mfsdp/device/ops/activation.h"

#include "mfsdp/base/error.h"

#include "device/ops/require.h"

namespace mfsdp::device {

namespace {

/// Elementwise arguments: dense values of one type, the shape of the first.
void require_elementwise(const Argument& argument, const Tensor& model) {
    require_type(argument, kValueTypes);
    require_rank(argument, model.dtype, model.rank);
    MFSDP_ASSERT(same_shape(argument.tensor, model),
                 std::string(argument.operation) + ": " + std::string(argument.name) + " is " +
                     argument.tensor.describe() + ", wanted the shape of " + model.describe());
    require_dense(argument);
}

}  // namespace

void GeluForward::check() const {
    require_elementwise({kName, "in", in}, in);
    require_elementwise({kName, "out", out}, in);
}

Cost GeluForward::cost() const { return {10 * in.count(), 2 * in.bytes()}; }

void GeluBackward::check() const {
    require_elementwise({kName, "in", in}, in);
    require_elementwise({kName, "grad_out", grad_out}, in);
    require_elementwise({kName, "grad_in", grad_in}, in);
}

Cost GeluBackward::cost() const { return {20 * in.count(), 3 * in.bytes()}; }

void SwiGluForward::check() const {
    require_elementwise({kName, "gate", gate}, gate);
    require_elementwise({kName, "up", up}, gate);
    require_elementwise({kName, "out", out}, gate);
}

Cost SwiGluForward::cost() const { return {5 * gate.count(), 3 * gate.bytes()}; }

void SwiGluBackward::check() const {
    require_elementwise({kName, "gate", gate}, gate);
    require_elementwise({kName, "up", up}, gate);
    require_elementwise({kName, "grad_out", grad_out}, gate);
    require_elementwise({kName, "grad_gate", grad_gate}, gate);
    require_elementwise({kName, "grad_up", grad_up}, gate);
    require_apart({kName, "grad_gate", grad_gate}, {kName, "grad_up", grad_up});
}

Cost SwiGluBackward::cost() const { return {11 * gate.count(), 5 * gate.bytes()}; }

void ColumnSum::check() const {
    if (!out.defined()) return;
    require_type({kName, "in", in}, kValueTypes);
    require_type({kName, "out", out}, kValueTypes);
    require_rank({kName, "in", in}, in.dtype, 2);
    require_contiguous_columns({kName, "in", in});
    require_shape({kName, "out", out}, out.dtype, {in.shape[1]});
    require_dense({kName, "out", out});
}

Cost ColumnSum::cost() const { return out.defined() ? Cost{in.count(), in.bytes() + out.bytes()} : Cost{}; }

}  // namespace mfsdp::device
