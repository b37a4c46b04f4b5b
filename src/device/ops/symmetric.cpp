#include "mfsdp/device/ops/symmetric.h"

#include "mfsdp/base/error.h"

#include "device/ops/require.h"

#include <string>

namespace mfsdp::device {

namespace {

struct Sides {
    std::int64_t batch, size, inner;
};

Sides sides(const Tensor& operand, bool transposed) {
    const auto last = static_cast<std::size_t>(operand.rank - 1);
    const std::int64_t batch = operand.rank == 3 ? operand.shape[0] : 1;
    return transposed ? Sides{batch, operand.shape[last], operand.shape[last - 1]}
                      : Sides{batch, operand.shape[last - 1], operand.shape[last]};
}

void require_matrices(const Argument& argument, int rank) {
    require_type(argument, kFloatTypes);
    require_rank(argument, argument.tensor.dtype, rank);
    require_contiguous_columns(argument);
    const auto last = static_cast<std::size_t>(rank - 1);
    MFSDP_ASSERT(
        argument.tensor.shape[last - 1] <= 1 || argument.tensor.strides[last - 1] >= argument.tensor.shape[last],
        "symmetric_product: the rows of " + std::string(argument.name) + ", " + argument.tensor.describe() +
            ", lie one behind the other, got a stride of " + std::to_string(argument.tensor.strides[last - 1]));
}

}  // namespace

void SymmetricProduct::check() const {
    MFSDP_ASSERT(out.rank == 2 || out.rank == 3,
                 "symmetric_product: out is a matrix or a batch of them, got " + out.describe());
    require_matrices({kName, "out", out}, out.rank);
    require_matrices({kName, "a", a}, out.rank);
    require_apart({kName, "out", out}, {kName, "a", a});
    const auto last = static_cast<std::size_t>(out.rank - 1);
    const Sides left = sides(a, transpose);
    MFSDP_ASSERT(out.shape[last] == left.size && out.shape[last - 1] == left.size &&
                     (out.rank == 2 || out.shape[0] == left.batch),
                 "symmetric_product: out " + out.describe() + " is no product of a " + a.describe() +
                     (transpose ? " transposed" : "") + " with a transpose");
    MFSDP_ASSERT(out.rank == 2 || out.shape[0] <= 1 || out.strides[0] != 0,
                 "symmetric_product: the matrices of out lie apart, got a batch stride of 0");
    if (!b.defined()) return;
    require_matrices({kName, "b", b}, out.rank);
    require_apart({kName, "out", out}, {kName, "b", b});
    require_same_type({kName, "b", b}, {kName, "a", a});
    MFSDP_ASSERT(same_shape(a, b),
                 "symmetric_product: b is " + b.describe() + ", wanted the shape of a, " + a.describe());
}

Cost SymmetricProduct::cost() const {
    const Sides left = sides(a, transpose);
    const std::int64_t triangle =
        left.batch * left.size * (left.size + 1);  // twice the elements: a multiply-add is two
    return {triangle * left.inner + (beta == 0.0F ? 0 : triangle),
            a.bytes() + (b.defined() ? b.bytes() : 0) + (beta == 0.0F ? 1 : 2) * out.bytes()};
}

void AddToDiagonal::check() const {
    require_matrices({kName, "out", out}, 2);
    require_shape({kName, "out", out}, out.dtype, {out.rows(), out.rows()});
}
Cost AddToDiagonal::cost() const { return {out.rows(), 2 * out.rows() * size_of(out.dtype)}; }

void FillIdentity::check() const {
    require_shape({kName, "out", out}, DType::float32, {out.rows(), out.rows()});
    require_dense({kName, "out", out});
}
Cost FillIdentity::cost() const { return {0, out.bytes()}; }

}  // namespace mfsdp::device
