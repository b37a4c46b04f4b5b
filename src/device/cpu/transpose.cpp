#include "device/cpu/kernels.h"
#include "device/cpu/pieces.h"
#include "device/cpu/transpose_block.h"

#include <algorithm>

namespace mfsdp::device::cpu {

namespace {

template <class T>
void transpose(const Context& context, const Transpose& operation) {
    constexpr std::int64_t kBlocksPerPiece = kPieceElements / (kTransposeBlock<T> * kTransposeBlock<T>);
    T* const out = context.data<T>(operation.out);
    const T* const in = context.data<const T>(operation.in);
    const std::int64_t rows = operation.in.shape[0], columns = operation.in.shape[1];
    const std::int64_t in_stride = operation.in.strides[0], out_stride = operation.out.strides[0];
    const std::int64_t down = (rows + kTransposeBlock<T> - 1) / kTransposeBlock<T>;
    const std::int64_t across = (columns + kTransposeBlock<T> - 1) / kTransposeBlock<T>;
    for_pieces(context.threads, down * across, kBlocksPerPiece, [=](std::int64_t first, std::int64_t count) {
        for (std::int64_t block = first; block < first + count; ++block) {
            const std::int64_t row = block / across * kTransposeBlock<T>, column = block % across * kTransposeBlock<T>;
            const std::int64_t height = std::min(kTransposeBlock<T>, rows - row);
            const std::int64_t width = std::min(kTransposeBlock<T>, columns - column);
            transpose_part(out + column * out_stride + row, out_stride, in + row * in_stride + column, in_stride,
                           height, width);
        }
    });
}

}  // namespace

void run(const Context& context, const Transpose& operation) {
    if (size_of(operation.in.dtype) == 2) {
        transpose<std::uint16_t>(context, operation);
    } else {
        transpose<float>(context, operation);
    }
}

}  // namespace mfsdp::device::cpu
