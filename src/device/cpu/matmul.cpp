#include "mfsdp/device/ops/matmul.h"

#include "device/cpu/element.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panel_product.h"
#include "device/cpu/panels.h"
#include "device/cpu/product.h"

#include <algorithm>

namespace mfsdp::device::cpu {

namespace {

struct BiasUse {};

/// The bias from column `first` on as floats, or null.
const float* panel_bias(const Context& context, const Tensor& bias, std::int64_t first, std::int64_t columns) {
    if (!bias.defined()) return nullptr;
    if (bias.dtype == DType::float32) return context.data<const float>(bias) + first;
    float* const wide = thread_scratch<float, BiasUse>(columns);
    const BFloat16* const source = context.data<const BFloat16>(bias) + first;
    store_rows(Result<float>{wide, columns}, 1, columns,
               [=](std::int64_t, std::int64_t i, std::int64_t lanes) { return load_lanes(source + i, lanes); });
    return wide;
}

template <class T, class To>
void multiply(const Context& context, const Matmul& operation) {
    const Tensor& out = operation.out;
    const auto last = static_cast<std::size_t>(out.rank - 1);
    const std::int64_t batch = out.rank == 3 ? out.shape[0] : 1;
    const std::int64_t rows = out.shape[last - 1], columns = out.shape[last];
    const std::int64_t inner = operation.a.shape[operation.transpose_a ? last - 1 : last];
    if (batch == 0 || rows == 0 || columns == 0) return;

    const Panels panels = cut_into_panels(rows, columns, inner);
    const std::int64_t column_panels = panels.column_panels(columns);
    const std::int64_t per_matrix = panels.row_panels(rows) * column_panels;
    context.threads.parallel_for(batch * per_matrix, [&](std::int64_t index) {
        const std::int64_t which = index / per_matrix;
        const std::int64_t row = index % per_matrix / column_panels * panels.rows;
        const std::int64_t column = index % per_matrix % column_panels * panels.columns;
        Result<To> target = matrix<To>(context, out, which);
        target.data += row * target.stride + column;
        Product<T> product;
        product.rows = std::min(panels.rows, rows - row);
        product.columns = std::min(panels.columns, columns - column);
        product.inner = inner;
        product.a = operand<T>(context, operation.a, operation.transpose_a, which, row, 0);
        product.b = operand<T>(context, operation.b, operation.transpose_b, which, 0, column);
        product.alpha = operation.alpha;
        product.beta = operation.beta;
        const float* const bias = panel_bias(context, operation.bias, column, product.columns);
        multiply_panel(context, product, target, bias);
    });
}

/// Rows with gaps between them go one by one.
void apply_gelu(const Context& context, const Tensor& gelu, const Tensor& out) {
    if (gelu.is_dense() && out.is_dense()) return run(context, GeluForward{gelu, out});
    for (std::int64_t row = 0; row < out.shape[0]; ++row) {
        run(context, GeluForward{gelu.slice(0, row, 1), out.slice(0, row, 1)});
    }
}

}  // namespace

void run(const Context& context, const Matmul& operation) {
    with_float_type(operation.a.dtype, [&](auto type) {
        with_float_type(operation.out.dtype, [&](auto out) {
            multiply<ElementOf<decltype(type)>, ElementOf<decltype(out)>>(context, operation);
        });
    });
    if (operation.gelu.defined()) apply_gelu(context, operation.gelu, operation.out);
}

}  // namespace mfsdp::device::cpu
