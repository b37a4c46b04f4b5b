#include "mfsdp/device/ops/matmul.h"
#include "mfsdp/device/ops/symmetric.h"

#include "device/cuda/kernels.h"
#include "device/cuda/transpose_tile.h"
#include "device/cuda/vectors.h"

#include <algorithm>

namespace mfsdp::device::cuda {

namespace {

/// Rows of one product: with as many a GPU is busy and the part below the diagonal that is computed in vain is small.
/// The emulated device cuts small matrices too, so that tests see several.
#ifdef MFSDP_CUDA_EMULATED
constexpr std::int64_t kPanelRows = 128;
#else
constexpr std::int64_t kPanelRows = 2048;
#endif
constexpr std::int64_t kPanelUnit = 64;  ///< where a panel may begin, so that its rows are aligned like the matrix

/// Rows of the panels of a matrix of so many rows, about kPanelRows.
std::int64_t panel_rows(std::int64_t size) {
    const std::int64_t panels = std::max<std::int64_t>(1, (size + kPanelRows / 2) / kPanelRows);
    return pieces_of(pieces_of(size, panels), kPanelUnit) * kPanelUnit;
}

/// Writes what lies below the diagonal from what lies above it. blockIdx.y is the matrix of a batch.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    mirror_kernel(Word* out, std::int64_t size, std::int64_t row_stride, std::int64_t batch_stride,
                  std::int64_t tiles_across, bool aligned) {
    MFSDP_SHARED(Word, tile[kTile * kTileStride<Word>]);
    const std::int64_t down = quotient(blockIdx.x, tiles_across);
    const std::int64_t row = down * kTile, column = (blockIdx.x - down * tiles_across) * kTile;
    if (column > row) return;
    Word* const matrix = out + blockIdx.y * batch_stride;
    const TileOf<const Word> above{matrix + column * row_stride + row, row_stride, size - column, size - row};
    const TileOf<Word> below{matrix + row * row_stride + column, row_stride, size - row, size - column};
    const bool in_vectors = aligned && above.is_whole() && row != column;
    read_tile(tile, above, in_vectors);
    __syncthreads();
    write_transposed_tile(below, tile, in_vectors, [=](int r, int c) { return row + r > column + c; });
}

template <class Word>
void mirror(const Context& context, const Tensor& out) {
    const auto last = static_cast<std::size_t>(out.rank - 1);
    const std::int64_t size = out.shape[last], tiles = pieces_of(size, kTile);
    const std::int64_t batch = out.rank == 3 ? out.shape[0] : 1;
    const dim3 blocks(static_cast<unsigned>(tiles * tiles), static_cast<unsigned>(batch));
    launch_kernel(mirror_kernel<Word>, Grid{blocks, kThreads}, context.stream, data<Word>(out), size,
                  out.strides[last - 1], out.rank == 3 ? out.strides[0] : 0, tiles,
                  is_aligned(out, kLanesOf<Word>, true));
}

__global__ void __launch_bounds__(kThreads) fill_identity_kernel(View<float> out, RowExtent<float> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            Floats<decltype(at)::kLanes> row;
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) row.lane[i] = at.column + i == at.row ? 1.0F : 0.0F;
            return row;
        },
        [=](auto at, const auto& row) { store(out, at, row); });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_to_diagonal_kernel(T* out, std::int64_t size, std::int64_t stride, float value) {
    const std::int64_t i = global_index();
    if (i < size) out[i * (stride + 1)] = rounded<T>(widened(out[i * (stride + 1)]) + value);
}

}  // namespace

// Panels of rows from the diagonal on, each one product; then the mirror image.
void run(const Context& context, const SymmetricProduct& operation) {
    const Tensor& out = operation.out;
    if (out.count() == 0) return;
    const Tensor& right = operation.b.defined() ? operation.b : operation.a;
    const int rows_axis = out.rank - 2, columns_axis = out.rank - 1;
    const int side = operation.transpose ? columns_axis : rows_axis;  // of the factors
    const std::int64_t size = out.shape[static_cast<std::size_t>(columns_axis)], rows = panel_rows(size);
    for (std::int64_t begin = 0; begin < size; begin += rows) {
        const std::int64_t count = std::min(rows, size - begin);
        run(context, Matmul{.out = out.slice(rows_axis, begin, count).slice(columns_axis, begin, size - begin),
                            .a = operation.a.slice(side, begin, count),
                            .b = right.slice(side, begin, size - begin),
                            .transpose_a = operation.transpose,
                            .transpose_b = !operation.transpose,
                            .alpha = operation.alpha,
                            .beta = operation.beta});
    }
    if (size_of(out.dtype) == 2) {
        mirror<std::uint16_t>(context, out);
    } else {
        mirror<std::uint32_t>(context, out);
    }
}

void run(const Context& context, const AddToDiagonal& operation) {
    with_float_type(operation.out.dtype, [&](auto type) {
        using T = ElementOf<decltype(type)>;
        const std::int64_t size = operation.out.rows();
        launch_kernel(add_to_diagonal_kernel<T>, Grid{static_cast<unsigned>(pieces_of(size, kThreads)), kThreads},
                      context.stream, data<T>(operation.out), size, operation.out.strides[0], operation.value);
    });
}

void run(const Context& context, const FillIdentity& operation) {
    const std::int64_t size = operation.out.rows();
    const auto extent = extent_of_rows<RowExtent<float>>(size, size, {operation.out});
    launch_kernel(fill_identity_kernel, extent.grid(), context.stream, rows_of<float>(operation.out, size), extent);
}

}  // namespace mfsdp::device::cuda
