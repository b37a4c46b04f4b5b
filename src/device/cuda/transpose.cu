#include "device/cuda/kernels.h"
#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

namespace {

/// Rows and columns of a tile that a block transposes in shared memory.
constexpr int kTile = 64;

/// Elements between the rows of the tile. Rows are an odd number of 32-bit words apart: threads that read down a column
/// then meet different banks.
template <class Word>
constexpr int kTileStride = kTile + 4 / static_cast<int>(sizeof(Word));

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
    constexpr int kLanes = kLanesOf<Word>;
    constexpr int kVectors = kTile / kLanes;
    MFSDP_SHARED(Word, tile[kTile * kTileStride<Word>]);
    const auto [out, in, rows, columns, out_stride, in_stride, tiles_across, aligned] = arguments;
    const std::int64_t down = quotient(blockIdx.x, tiles_across);
    const std::int64_t first_row = down * kTile, first_column = (blockIdx.x - down * tiles_across) * kTile;
    const bool whole = aligned && first_row + kTile <= rows && first_column + kTile <= columns;
    if (whole) {
        MFSDP_UNROLL
        for (int i = 0; i < kTile * kVectors / kThreads; ++i) {
            const int vector = i * kThreads + static_cast<int>(threadIdx.x);
            const int row = vector / kVectors, column = vector % kVectors * kLanes;
            const auto bits = load_packed<kLanes>(in + (first_row + row) * in_stride + first_column + column);
            // The rows of the tile begin on 4 bytes only.
            auto* const words = reinterpret_cast<std::uint32_t*>(tile + row * kTileStride<Word> + column);
            MFSDP_UNROLL
            for (int word = 0; word < bits.kWords; ++word) memcpy(words + word, &bits.word[word], sizeof *words);
        }
    } else {
        for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
            const int row = i / kTile, column = i % kTile;
            if (first_row + row >= rows || first_column + column >= columns) continue;
            tile[row * kTileStride<Word> + column] = in[(first_row + row) * in_stride + first_column + column];
        }
    }
    __syncthreads();
    if (whole) {
        MFSDP_UNROLL
        for (int i = 0; i < kTile * kVectors / kThreads; ++i) {
            const int vector = i * kThreads + static_cast<int>(threadIdx.x);
            const int column = vector / kVectors, row = vector % kVectors * kLanes;
            Word lanes[kLanes];
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = tile[(row + lane) * kTileStride<Word> + column];
            Packed<Word, kLanes> bits;
            memcpy(&bits, lanes, sizeof bits);
            store_packed(out + (first_column + column) * out_stride + first_row + row, bits);
        }
    } else {
        for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
            const int column = i / kTile, row = i % kTile;
            if (first_row + row >= rows || first_column + column >= columns) continue;
            out[(first_column + column) * out_stride + first_row + row] = tile[row * kTileStride<Word> + column];
        }
    }
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
