#include "device/cuda/kernels.h"
#include "device/cuda/transpose_tile.h"
#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

namespace {

/// Transposing moves bits and never looks at values.
template <class Word>
__global__ void __launch_bounds__(kThreads) transpose_kernel(TransposeArguments<Word, Word> arguments) {
    MFSDP_SHARED(Word, tile[kTile * kTileStride<Word>]);
    transpose_tile(arguments, tile, AsItIs{});
}

template <class Word>
void transpose(const Context& context, const Transpose& operation) {
    const auto arguments = transpose_arguments<Word, Word>(operation.out, operation.in);
    launch_kernel(transpose_kernel<Word>, arguments.grid(), context.stream, arguments);
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
