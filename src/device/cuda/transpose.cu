#include "device/cuda/kernels.h"
#include "device/cuda/transpose_tile.h"
#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

namespace {

template <class Word>
struct TransposeArguments {
    Word* out;
    const Word* in;
    std::int64_t rows, columns;  ///< of `in`
    std::int64_t out_stride, in_stride;
    std::int64_t tiles_across;
    bool aligned;
};

/// Transposing moves bits and never looks at values. Both sides are accessed 16 bytes at a time; the turn happens
/// between the tile's rows, where a vector is written, and its columns, where one is collected.
template <class Word>
__global__ void __launch_bounds__(kThreads) transpose_kernel(TransposeArguments<Word> arguments) {
    MFSDP_SHARED(Word, tile[kTile * kTileStride<Word>]);
    const auto& a = arguments;
    const std::int64_t down = quotient(blockIdx.x, a.tiles_across);
    const std::int64_t row = down * kTile, column = (blockIdx.x - down * a.tiles_across) * kTile;
    const TileOf<const Word> source{a.in + row * a.in_stride + column, a.in_stride, a.rows - row, a.columns - column};
    const TileOf<Word> target{a.out + column * a.out_stride + row, a.out_stride, a.columns - column, a.rows - row};
    const bool in_vectors = a.aligned && source.is_whole();
    read_tile(tile, source, in_vectors);
    __syncthreads();
    write_transposed_tile(target, tile, in_vectors, [](int, int) { return true; });
}

template <class Word>
void transpose(const Context& context, const Transpose& operation) {
    const Tensor &out = operation.out, &in = operation.in;
    TransposeArguments<Word> arguments{};
    arguments.out = data<Word>(out);
    arguments.in = data<const Word>(in);
    arguments.rows = in.shape[0];
    arguments.columns = in.shape[1];
    arguments.out_stride = out.strides[0];
    arguments.in_stride = in.strides[0];
    arguments.tiles_across = pieces_of(in.shape[1], kTile);
    arguments.aligned = is_aligned(out, kLanesOf<Word>, true) && is_aligned(in, kLanesOf<Word>, true);
    const auto blocks = static_cast<unsigned>(pieces_of(in.shape[0], kTile) * arguments.tiles_across);
    launch_kernel(transpose_kernel<Word>, Grid{blocks, kThreads}, context.stream, arguments);
}

}  // namespace

void run(const Context& context, const Transpose& operation) {
    if (size_of(operation.in.dtype) == 2) {
        transpose<std::uint16_t>(context, operation);
    } else {
        transpose<std::uint32_t>(context, operation);
    }
}

}  // namespace mfsdp::device::cuda
