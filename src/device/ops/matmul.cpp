#include "mfsdp/device/ops/matmul.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/ops/activation.h"

#include "device/ops/require.h"

#include <string>

namespace mfsdp::device {

namespace {

struct Sides {
    std::int64_t batch, rows, columns;
};

Sides sides(const Tensor& tensor, bool transposed) {
    const auto last = static_cast<std::size_t>(tensor.rank - 1);
    Sides result{tensor.rank == 3 ? tensor.shape[0] : 1, tensor.shape[last - 1], tensor.shape[last]};
    if (transposed) std::swap(result.rows, result.columns);
    return result;
}

void require_matrices(const Argument& argument, int rank) {
    require_type(argument, kFloatTypes);
    require_rank(argument, argument.tensor.dtype, rank);
    require_contiguous_columns(argument);
    const auto last = static_cast<std::size_t>(rank - 1);
    const std::int64_t rows = argument.tensor.shape[last - 1];
    const std::int64_t columns = argument.tensor.shape[last];
    MFSDP_ASSERT(rows <= 1 || argument.tensor.strides[last - 1] >= columns,
                 "matmul: the rows of " + std::string(argument.name) + ", " + argument.tensor.describe() +
                     ", lie one behind the other, got a stride of " +
                     std::to_string(argument.tensor.strides[last - 1]));
}

void require_gelu(const Matmul& operation) {
    const Argument gelu{Matmul::kName, "gelu", operation.gelu};
    const Tensor& out = operation.out;
    MFSDP_ASSERT(out.rank == 2, "matmul: gelu belongs to a single product, got out " + out.describe());
    MFSDP_ASSERT(operation.beta == 0.0F, "matmul: gelu goes with beta = 0, got " + std::to_string(operation.beta));
    require_type(gelu, kValueTypes);
    require_shape(gelu, out.dtype, {out.shape[0], out.shape[1]});
    require_matrices(gelu, 2);
    for (const Argument& other : {Argument{Matmul::kName, "out", out}, Argument{Matmul::kName, "a", operation.a},
                                  Argument{Matmul::kName, "b", operation.b}}) {
        require_apart(gelu, other);
    }
}

}  // namespace

void Matmul::check() const {
    MFSDP_ASSERT(out.rank == 2 || out.rank == 3, "matmul: out is a matrix or a batch of them, got " + out.describe());
    require_matrices({kName, "out", out}, out.rank);
    require_matrices({kName, "a", a}, out.rank);
    require_matrices({kName, "b", b}, out.rank);
    require_same_type({kName, "b", b}, {kName, "a", a});
    require_apart({kName, "out", out}, {kName, "a", a});
    require_apart({kName, "out", out}, {kName, "b", b});
    const Sides result = sides(out, false);
    const Sides left = sides(a, transpose_a);
    const Sides right = sides(b, transpose_b);
    MFSDP_ASSERT(left.batch == result.batch && right.batch == result.batch && left.rows == result.rows &&
                     right.columns == result.columns && left.columns == right.rows,
                 "matmul: out " + out.describe() + " is no product of a " + a.describe() +
                     (transpose_a ? " transposed" : "") + " and b " + b.describe() +
                     (transpose_b ? " transposed" : ""));
    MFSDP_ASSERT(out.rank == 2 || out.shape[0] <= 1 || out.strides[0] != 0,
                 "matmul: the matrices of out lie apart, got a batch stride of 0");
    if (bias.defined()) {
        require_type({kName, "bias", bias}, kValueTypes);
        require_shape({kName, "bias", bias}, bias.dtype, {result.columns});
        require_dense({kName, "bias", bias});
    }
    if (gelu.defined()) require_gelu(*this);
}

Cost Matmul::cost() const {
    const Sides result = sides(out, false);
    const std::int64_t k = sides(a, transpose_a).columns;
    const std::int64_t products = 2 * result.batch * result.rows * result.columns * k;
    const std::int64_t additions = bias.defined() ? out.count() : 0;
    const Cost of_gelu = gelu.defined() ? Cost{GeluForward{gelu, out}.cost().flops, gelu.bytes()} : Cost{};
    const std::int64_t reads_of_out = beta == 0.0F ? 0 : out.bytes();
    return {products + additions + of_gelu.flops,
            a.bytes() + b.bytes() + out.bytes() + reads_of_out + (bias.defined() ? bias.bytes() : 0) + of_gelu.bytes};
}

}  // namespace mfsdp::device
