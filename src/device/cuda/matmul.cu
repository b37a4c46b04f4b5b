#include "mfsdp/device/ops/matmul.h"

#include "device/cuda/element.h"
#include "device/cuda/kernels.h"
#include "device/cuda/launch.h"
#include "device/cuda/products.h"

#include <optional>

// Products are cuBLASLt's. It takes matrices whose rows begin where its algorithm for the shape wants them, and not
// every mix of types; the others go through scratch, so that an algorithm, and with it every bit, depends on the shape
// alone:
// - a matrix that lies otherwise is copied to a dense one; for out that is a copy back;
// - where the library has no product with this type of out or of the bias, it is computed in float32 without bias, and
//   finish_kernel adds what is left and rounds once;
// - GELU is the library's for values of 16 bits. How exactly it computes it is not said, so float32 values get it from
//   our own kernel, as does what the library has no product with GELU for.

namespace mfsdp::device::cuda {

namespace {

constexpr int kFinishThreads = 256;

/// A matrix or a batch of them.
struct Matrices {
    std::int64_t batch, rows, columns, row_stride, batch_stride;
};

Matrices matrices(const Tensor& tensor) {
    const auto last = static_cast<std::size_t>(tensor.rank - 1);
    Matrices result{1, tensor.shape[last - 1], tensor.shape[last], tensor.strides[last - 1], 0};
    if (tensor.rank == 3) {
        result.batch = tensor.shape[0];
        result.batch_stride = tensor.strides[0];
    }
    // Strides that nothing depends on are the dense ones, so that they make no other plan.
    if (result.rows == 1) result.row_stride = result.columns;
    if (result.batch == 1) result.batch_stride = result.rows * result.columns;
    return result;
}

/// Whether the library takes the matrices as they lie.
bool is_usable(const Tensor& tensor) {
    const Matrices m = matrices(tensor);
    const std::int64_t alignment = product_alignment(m.columns, tensor.dtype), size = size_of(tensor.dtype);
    return reinterpret_cast<std::uintptr_t>(tensor.data) % static_cast<std::uintptr_t>(alignment) == 0 &&
           m.row_stride * size % alignment == 0 && m.batch_stride * size % alignment == 0;
}

bool is_usable_beside_gelu(const Tensor& out) {
    return is_usable(out) && matrices(out).row_stride % kColumnsBesideGelu == 0;
}

Tensor dense_like(const Tensor& tensor, DType dtype, std::byte* address) {
    const Matrices m = matrices(tensor);
    return tensor.rank == 3 ? Tensor::dense(address, dtype, {m.batch, m.rows, m.columns})
                            : Tensor::dense(address, dtype, {m.rows, m.columns});
}

/// The tensor itself, or a place in scratch for a dense copy of it.
class Operand {
  public:
    Operand(const Tensor& tensor, DType dtype, bool in_place, ScratchPlan& plan) : tensor_(tensor), dtype_(dtype) {
        if (!in_place) piece_ = plan.add<std::byte>(tensor.count() * size_of(dtype));
    }
    [[nodiscard]] bool in_place() const { return !piece_.has_value(); }
    /// The matrices that the product reads or writes; before there is scratch, only their strides count.
    [[nodiscard]] Tensor in(std::byte* scratch) const {
        if (in_place()) return tensor_;
        return dense_like(tensor_, dtype_, scratch == nullptr ? nullptr : piece_->at(scratch));
    }

  private:
    Tensor tensor_;
    DType dtype_;
    std::optional<ScratchPlan::Piece<std::byte>> piece_;
};

ProductShape shape_of(const Matmul& operation) {
    const Matrices a = matrices(operation.a), out = matrices(operation.out);
    return {.m = out.rows,
            .n = out.columns,
            .k = operation.transpose_a ? a.rows : a.columns,
            .transpose_a = operation.transpose_a,
            .transpose_b = operation.transpose_b,
            .bias = operation.bias.defined(),
            .factors = operation.a.dtype,
            .out = operation.out.dtype};
}

ProductLayout layout_of(const Tensor& a, const Tensor& b, const Tensor& out) {
    const Matrices left = matrices(a), right = matrices(b), result = matrices(out);
    return {.row_stride_a = left.row_stride,
            .row_stride_b = right.row_stride,
            .row_stride_out = result.row_stride,
            .batch = result.batch,
            .batch_stride_a = left.batch_stride,
            .batch_stride_b = right.batch_stride,
            .batch_stride_out = result.batch_stride};
}

/// out = beta out + product + bias, rounded once; product [batch, rows, columns] dense, or null for zeros.
template <class Out, class Bias>
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(Out* out, Matrices m, const float* product, const Bias* bias, float beta) {
    const std::int64_t index = global_index();
    if (index >= m.batch * m.rows * m.columns) return;
    const std::int64_t row = index / m.columns, column = index - row * m.columns;
    const std::int64_t batch = row / m.rows;
    Out* const target = out + batch * m.batch_stride + (row - batch * m.rows) * m.row_stride + column;
    float sum = product == nullptr ? 0.0F : product[index];
    if (beta != 0.0F) sum = fmaf(beta, widened(*target), sum);
    if (bias != nullptr) sum += widened(bias[column]);
    *target = rounded<Out>(sum);
}

void finish(const Context& context, const Matmul& operation, const std::byte* product) {
    const std::int64_t count = operation.out.count();
    with_float_type(operation.out.dtype, [&](auto out_type) {
        with_value_type(operation.bias.defined() ? operation.bias.dtype : DType::float32, [&](auto bias_type) {
            using Out = ElementOf<decltype(out_type)>;
            using Bias = ElementOf<decltype(bias_type)>;
            launch_kernel(finish_kernel<Out, Bias>,
                          Grid{static_cast<unsigned>(pieces_of(count, kFinishThreads)), kFinishThreads}, context.stream,
                          data<Out>(operation.out), matrices(operation.out), reinterpret_cast<const float*>(product),
                          data<const Bias>(operation.bias), operation.beta);
        });
    });
}

/// GELU by its own kernel, which takes dense tensors.
void apply_gelu(const Context& context, const Tensor& gelu, const Tensor& out) {
    if (gelu.is_dense() && out.is_dense()) return run(context, GeluForward{gelu, out});
    const Tensor dense = dense_like(out, out.dtype, context.scratch.reserve(out.bytes()));
    run(context, Copy{dense, out});
    run(context, GeluForward{dense, dense});
    run(context, Copy{gelu, dense});
}

/// Whether the library computes the product of this shape, GELU included.
bool takes_gelu(const Context& context, const Matmul& operation, ProductShape shape) {
    if (!operation.gelu.defined() || size_of(operation.out.dtype) != 2) return false;
    shape.gelu = true;
    return context.products.supports(shape);
}

/// Everything but a GELU that is left to its own kernel; gives whether it is.
bool multiply(const Context& context, const Matmul& operation) {
    ProductShape shape = shape_of(operation);
    if (shape.k == 0) {
        finish(context, operation, nullptr);
        return operation.gelu.defined();
    }
    const bool whole = (!shape.bias || operation.bias.dtype == operation.out.dtype) && context.products.supports(shape);
    if (!whole) {
        shape.bias = false;
        shape.out = DType::float32;
        MFSDP_ASSERT(context.products.supports(shape), "cuBLASLt multiplies every type of factors into float32");
    }
    shape.gelu = whole && takes_gelu(context, operation, shape);
    ScratchPlan scratch;
    const Operand a(operation.a, operation.a.dtype, is_usable(operation.a), scratch);
    const Operand b(operation.b, operation.b.dtype, is_usable(operation.b), scratch);
    const bool writes_out = whole && (shape.gelu ? is_usable_beside_gelu(operation.out) : is_usable(operation.out));
    const Operand out(operation.out, shape.out, writes_out, scratch);
    const Operand gelu(operation.gelu, shape.out, !shape.gelu || is_usable(operation.gelu), scratch);
    const bool moves_bias = shape.bias && reinterpret_cast<std::uintptr_t>(operation.bias.data) % 16 != 0;
    const auto bias_piece = scratch.add<std::byte>(moves_bias ? operation.bias.bytes() : 0);

    ProductLayout layout = layout_of(a.in(nullptr), b.in(nullptr), out.in(nullptr));
    if (shape.gelu) layout.row_stride_gelu = matrices(gelu.in(nullptr)).row_stride;
    const Products::Plan& plan = context.products.plan(shape, layout);
    const auto workspace = scratch.add<std::byte>(plan.workspace_bytes);
    std::byte* const base = context.scratch.reserve(scratch.bytes());

    if (!a.in_place()) run(context, Copy{a.in(base), operation.a});
    if (!b.in_place()) run(context, Copy{b.in(base), operation.b});
    const bool accumulates = whole && operation.beta != 0.0F;
    if (!out.in_place() && accumulates) run(context, Copy{out.in(base), operation.out});
    Products::Addresses addresses{.a = a.in(base).data, .b = b.in(base).data, .out = out.in(base).data};
    if (shape.gelu) addresses.gelu = gelu.in(base).data;
    if (shape.bias) addresses.bias = operation.bias.data;
    if (moves_bias) {
        const Tensor moved = Tensor::dense(bias_piece.at(base), operation.bias.dtype, {shape.n});
        run(context, Copy{moved, operation.bias});
        addresses.bias = moved.data;
    }
    if (plan.workspace_bytes > 0) addresses.workspace = workspace.at(base);
    context.products.multiply(shape, layout, plan, addresses, operation.alpha, accumulates ? operation.beta : 0.0F,
                              context.stream);
    if (!whole) {
        finish(context, operation, addresses.out);
    } else if (!out.in_place()) {
        run(context, Copy{operation.out, out.in(base)});
    }
    if (!gelu.in_place()) run(context, Copy{operation.gelu, gelu.in(base)});
    return operation.gelu.defined() && !shape.gelu;
}

}  // namespace

void run(const Context& context, const Matmul& operation) {
    if (operation.out.count() == 0) return;
    const bool leaves_gelu = multiply(context, operation);
    if (leaves_gelu) apply_gelu(context, operation.gelu, operation.out);
}

}  // namespace mfsdp::device::cuda
