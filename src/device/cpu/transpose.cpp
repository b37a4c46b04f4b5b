#include "device/cpu/element.h"
#include "device/cpu/kernels.h"
#include "device/cpu/pieces.h"
#include "device/cpu/transpose8.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace mfsdp::device::cpu {

namespace {

// Transposing moves bits and never looks at values, so 16 bits of any type are moved as integers: no rounding, and a
// NaN keeps its payload.
Float8 load_bits(const float* source) { return load(source); }
Float8 load_bits(const std::uint16_t* source) { return reinterpret_cast<Float8>(zero_extended(load_halves(source))); }
void store_bits(float* target, Float8 bits) { store(target, bits); }
void store_bits(std::uint16_t* target, Float8 bits) {
    const Half8 halves = low_halves(reinterpret_cast<Word8>(bits));
    std::memcpy(target, &halves, sizeof halves);
}

// Elements in one line of the cache. Rows of weight matrices often lie a multiple of 4 KiB apart, where all their lines
// compete for eight places of the first-level cache: each line is read once and written once, whole.
template <class T>
constexpr std::int64_t kBlock = 64 / static_cast<std::int64_t>(sizeof(T));

template <class T>
void transpose_block(T* out, std::int64_t out_stride, const T* in, std::int64_t in_stride) {
    T lines[kBlock<T>][kBlock<T>];  // the transposed block
    for (std::int64_t row = 0; row < kBlock<T>; row += kLanes) {
        for (std::int64_t column = 0; column < kBlock<T>; column += kLanes) {
            std::array<Float8, 8> part;
            for (std::size_t i = 0; i < 8; ++i) {
                part[i] = load_bits(in + (row + static_cast<std::int64_t>(i)) * in_stride + column);
            }
            part = transposed(part);
            for (std::size_t i = 0; i < 8; ++i) store_bits(&lines[column + static_cast<std::int64_t>(i)][row], part[i]);
        }
    }
    for (std::int64_t row = 0; row < kBlock<T>; ++row)
        std::memcpy(out + row * out_stride, lines[row], sizeof lines[row]);
}

template <class T>
void transpose(const Context& context, const Transpose& operation) {
    constexpr std::int64_t kBlocksPerPiece = kPieceElements / (kBlock<T> * kBlock<T>);
    T* const out = context.data<T>(operation.out);
    const T* const in = context.data<const T>(operation.in);
    const std::int64_t rows = operation.in.shape[0], columns = operation.in.shape[1];
    const std::int64_t in_stride = operation.in.strides[0], out_stride = operation.out.strides[0];
    const std::int64_t down = (rows + kBlock<T> - 1) / kBlock<T>;
    const std::int64_t across = (columns + kBlock<T> - 1) / kBlock<T>;
    for_pieces(context.threads, down * across, kBlocksPerPiece, [=](std::int64_t first, std::int64_t count) {
        for (std::int64_t block = first; block < first + count; ++block) {
            const std::int64_t row = block / across * kBlock<T>, column = block % across * kBlock<T>;
            const std::int64_t height = std::min(kBlock<T>, rows - row);
            const std::int64_t width = std::min(kBlock<T>, columns - column);
            const T* const source = in + row * in_stride + column;
            T* const target = out + column * out_stride + row;
            if (height == kBlock<T> && width == kBlock<T>) {
                transpose_block(target, out_stride, source, in_stride);
            } else {
                for (std::int64_t c = 0; c < width; ++c) {
                    for (std::int64_t r = 0; r < height; ++r) target[c * out_stride + r] = source[r * in_stride + c];
                }
            }
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
