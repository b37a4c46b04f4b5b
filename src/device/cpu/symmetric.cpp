#include "mfsdp/device/ops/symmetric.h"

#include "device/cpu/element.h"
#include "device/cpu/kernels.h"
#include "device/cpu/mirror.h"
#include "device/cpu/panel_product.h"
#include "device/cpu/panels.h"
#include "device/cpu/pieces.h"

#include <algorithm>
#include <type_traits>

namespace mfsdp::device::cpu {

namespace {

/// Panel `index` of those that reach above the diagonal, row of panels by row of panels.
struct UpperPanel {
    std::int64_t row, column;
};

class UpperPanels {
  public:
    UpperPanels(std::int64_t size, const Panels& extents) : size_(size), extents_(extents) {
        for (std::int64_t row = 0; row < size; row += extents.rows) count_ += in_row(row);
    }
    [[nodiscard]] std::int64_t count() const { return count_; }
    [[nodiscard]] UpperPanel at(std::int64_t index) const {
        std::int64_t row = 0;
        for (; index >= in_row(row); row += extents_.rows) index -= in_row(row);
        return {row, (first_in_row(row) + index) * extents_.columns};
    }

  private:
    /// The panel that holds the diagonal's element in `row` is the first with anything above the diagonal.
    [[nodiscard]] std::int64_t first_in_row(std::int64_t row) const { return row / extents_.columns; }
    [[nodiscard]] std::int64_t in_row(std::int64_t row) const {
        return extents_.column_panels(size_) - first_in_row(row);
    }

    std::int64_t size_;
    Panels extents_;
    std::int64_t count_ = 0;
};

/// Writes what lies below the diagonal of every matrix of `out`: bits alone, so 16 bits of any type move as integers.
template <class Bits>
void mirror(const Context& context, const Tensor& out, std::int64_t batch, std::int64_t size) {
    const std::int64_t per_matrix = (size + kMirrorRows - 1) / kMirrorRows;
    context.threads.parallel_for(batch * per_matrix, [&](std::int64_t index) {
        const auto whole = matrix<Bits>(context, out, index / per_matrix);
        const std::int64_t row = index % per_matrix * kMirrorRows;
        mirror_rows(whole.data, whole.stride, row, std::min(kMirrorRows, size - row));
    });
}

template <class T, class To>
void multiply(const Context& context, const SymmetricProduct& operation) {
    const Tensor& out = operation.out;
    const auto last = static_cast<std::size_t>(out.rank - 1);
    const std::int64_t batch = out.rank == 3 ? out.shape[0] : 1, size = out.shape[last];
    const std::int64_t inner = operation.a.shape[operation.transpose ? last - 1 : last];
    if (batch == 0 || size == 0) return;

    const Tensor& right = operation.b.defined() ? operation.b : operation.a;
    const Panels extents = cut_symmetric(size, inner);
    const UpperPanels panels(size, extents);
    context.threads.parallel_for(batch * panels.count(), [&](std::int64_t index) {
        const std::int64_t which = index / panels.count();
        const auto [row, column] = panels.at(index % panels.count());
        Result<To> target = matrix<To>(context, out, which);
        target.data += row * target.stride + column;
        Product<T> product;
        product.rows = std::min(extents.rows, size - row);
        product.columns = std::min(extents.columns, size - column);
        product.inner = inner;
        product.a = operand<T>(context, operation.a, operation.transpose, which, row, 0);
        product.b = operand<T>(context, right, !operation.transpose, which, 0, column);
        product.alpha = operation.alpha;
        product.beta = operation.beta;
        product.diagonal = row - column;
        multiply_panel(context, product, target, nullptr);
    });
    mirror<std::conditional_t<std::is_same_v<To, float>, float, std::uint16_t>>(context, out, batch, size);
}

}  // namespace

void run(const Context& context, const SymmetricProduct& operation) {
    with_float_type(operation.a.dtype, [&](auto type) {
        with_float_type(operation.out.dtype, [&](auto out) {
            multiply<ElementOf<decltype(type)>, ElementOf<decltype(out)>>(context, operation);
        });
    });
}

void run(const Context& context, const AddToDiagonal& operation) {
    with_float_type(operation.out.dtype, [&](auto type) {
        using T = ElementOf<decltype(type)>;
        T* const out = context.data<T>(operation.out);
        const std::int64_t stride = operation.out.strides[0];
        for (std::int64_t i = 0; i < operation.out.rows(); ++i) {
            T& element = out[i * stride + i];
            element = rounded<T>(widened(element) + operation.value);
        }
    });
}

void run(const Context& context, const FillIdentity& operation) {
    float* const out = context.data<float>(operation.out);
    const std::int64_t size = operation.out.rows();
    for_row_pieces(context.threads, size, size, [=](std::int64_t row, std::int64_t begin, std::int64_t count) {
        std::fill_n(out + row * size + begin, count, 0.0F);
        if (row >= begin && row < begin + count) out[row * size + row] = 1.0F;
    });
}

}  // namespace mfsdp::device::cpu
