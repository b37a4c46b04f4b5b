#include "device/cpu/kernels.h"
#include "device/cpu/mix.h"
#include "device/cpu/pieces.h"
#include "device/cpu/transpose8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

namespace mfsdp::device::cpu {

namespace {

template <class T>
void fill(const Context& context, const Fill& operation) {
    T* const out = context.data<T>(operation.out);
    const T value = static_cast<T>(operation.value);
    for_pieces(context.threads, operation.out.count(), kPieceElements,
               [=](std::int64_t begin, std::int64_t size) { std::fill_n(out + begin, size, value); });
}

void copy_bytes(ThreadPool& threads, void* out, const void* in, std::int64_t bytes) {
    auto* const target = static_cast<std::byte*>(out);
    const auto* const source = static_cast<const std::byte*>(in);
    for_pieces(threads, bytes, 4 * kPieceElements, [=](std::int64_t begin, std::int64_t size) {
        std::memcpy(target + begin, source + begin, static_cast<std::size_t>(size));
    });
}

/// Distance in elements from the tensor's address to the beginning of a row, rows counted over all leading dimensions.
std::int64_t row_offset(const Tensor& tensor, std::int64_t row) {
    std::int64_t offset = 0;
    for (int axis = tensor.rank - 2; axis >= 0; --axis) {
        const auto index = static_cast<std::size_t>(axis);
        offset += row % tensor.shape[index] * tensor.strides[index];
        row /= tensor.shape[index];
    }
    return offset;
}

// One line of the cache is 16 floats. Rows of weight matrices often lie a multiple of 4 KiB apart, where all their
// lines compete for eight places of the first-level cache: each line is read once and written once, whole.
constexpr std::int64_t kTransposeBlock = 16;

void transpose_block(float* out, std::int64_t out_stride, const float* in, std::int64_t in_stride) {
    std::array<std::array<Float8, 8>, 4> quarters;  // top left, top right, bottom left, bottom right
    for (std::int64_t row = 0; row < kTransposeBlock; ++row) {
        const auto quarter = static_cast<std::size_t>(row / 8 * 2), line = static_cast<std::size_t>(row % 8);
        quarters[quarter][line] = load(in + row * in_stride);
        quarters[quarter + 1][line] = load(in + row * in_stride + kLanes);
    }
    for (auto& quarter : quarters) quarter = transposed(quarter);
    for (std::int64_t row = 0; row < kTransposeBlock; ++row) {
        const auto quarter = static_cast<std::size_t>(row / 8), line = static_cast<std::size_t>(row % 8);
        store(out + row * out_stride, quarters[quarter][line]);
        store(out + row * out_stride + kLanes, quarters[quarter + 2][line]);
    }
}

/// The standard normal value of one index. Source: Box and Muller 1958, the cosine half of a pair, so that an index
/// needs nothing of its neighbours.
double normal(std::uint64_t key, std::uint64_t index) {
    constexpr double kUnit = 0x1p-53;
    const std::uint64_t state = key + kMixIncrement * (2 * index);
    const double radius = static_cast<double>((mix(state + kMixIncrement) >> 11) + 1) * kUnit;  // in (0, 1]
    const double turn = static_cast<double>(mix(state + 2 * kMixIncrement) >> 11) * kUnit;      // in [0, 1)
    return std::sqrt(-2.0 * std::log(radius)) * std::cos(2.0 * std::numbers::pi * turn);
}

}  // namespace

void run(const Context& context, const Fill& operation) {
    switch (operation.out.dtype) {
        case DType::float32:
            return fill<float>(context, operation);
        case DType::float64:
            return fill<double>(context, operation);
        case DType::int32:
            return fill<std::int32_t>(context, operation);
        case DType::int64:
            return fill<std::int64_t>(context, operation);
        case DType::bfloat16:
        case DType::float16:
            return;  // refused by check()
    }
}

void run(const Context& context, const Copy& operation) {
    auto* const out = context.data<std::byte>(operation.out);
    const auto* const in = context.data<const std::byte>(operation.in);
    if (operation.out.is_dense() && operation.in.is_dense()) {
        copy_bytes(context.threads, out, in, operation.out.bytes());
        return;
    }
    const std::int64_t width = size_of(operation.out.dtype);
    for_row_pieces(context.threads, operation.out.rows(), operation.out.columns(),
                   [&](std::int64_t row, std::int64_t begin, std::int64_t size) {
                       std::memcpy(out + (row_offset(operation.out, row) + begin) * width,
                                   in + (row_offset(operation.in, row) + begin) * width,
                                   static_cast<std::size_t>(size * width));
                   });
}

void run(const Context& context, const Add& operation) {
    float* const out = context.data<float>(operation.out);
    const float* const a = context.data<const float>(operation.a);
    const float* const b = context.data<const float>(operation.b);
    for_pieces(context.threads, operation.out.count(), kPieceElements, [=](std::int64_t begin, std::int64_t size) {
        for (std::int64_t i = begin; i < begin + size; ++i) out[i] = a[i] + b[i];
    });
}

void run(const Context& context, const ScaledAdd& operation) {
    float* const out = context.data<float>(operation.out);
    const float* const a = context.data<const float>(operation.a);
    const float* const b = context.data<const float>(operation.b);
    const float alpha = operation.alpha;
    const float beta = operation.beta;
    for_pieces(context.threads, operation.out.count(), kPieceElements, [=](std::int64_t begin, std::int64_t size) {
        if (b == nullptr) {
            for (std::int64_t i = begin; i < begin + size; ++i) out[i] = alpha * a[i];
        } else {
            for (std::int64_t i = begin; i < begin + size; ++i) out[i] = std::fma(alpha, a[i], beta * b[i]);
        }
    });
}

void run(const Context& context, const Transpose& operation) {
    constexpr std::int64_t kBlocksPerPiece = kPieceElements / (kTransposeBlock * kTransposeBlock);
    float* const out = context.data<float>(operation.out);
    const float* const in = context.data<const float>(operation.in);
    const std::int64_t rows = operation.in.shape[0], columns = operation.in.shape[1];
    const std::int64_t in_stride = operation.in.strides[0], out_stride = operation.out.strides[0];
    const std::int64_t down = (rows + kTransposeBlock - 1) / kTransposeBlock;
    const std::int64_t across = (columns + kTransposeBlock - 1) / kTransposeBlock;
    for_pieces(context.threads, down * across, kBlocksPerPiece, [=](std::int64_t first, std::int64_t count) {
        for (std::int64_t block = first; block < first + count; ++block) {
            const std::int64_t row = block / across * kTransposeBlock, column = block % across * kTransposeBlock;
            const std::int64_t height = std::min(kTransposeBlock, rows - row);
            const std::int64_t width = std::min(kTransposeBlock, columns - column);
            const float* const source = in + row * in_stride + column;
            float* const target = out + column * out_stride + row;
            if (height == kTransposeBlock && width == kTransposeBlock) {
                transpose_block(target, out_stride, source, in_stride);
            } else {
                for (std::int64_t c = 0; c < width; ++c) {
                    for (std::int64_t r = 0; r < height; ++r) target[c * out_stride + r] = source[r * in_stride + c];
                }
            }
        }
    });
}

void run(const Context& context, const CopyFromHost& operation) {
    copy_bytes(context.threads, context.data<std::byte>(operation.out), operation.source, operation.out.bytes());
}

void run(const Context& context, const CopyToHost& operation) {
    copy_bytes(context.threads, operation.target, context.data<const std::byte>(operation.in), operation.in.bytes());
}

void run(const Context& context, const FillNormal& operation) {
    // A normal costs as much as a hundred elements of the other operations.
    constexpr std::int64_t kPiece = 1024;
    float* const out = context.data<float>(operation.out);
    const auto first = static_cast<std::uint64_t>(operation.first_index);
    const std::uint64_t key = mix(operation.key);  // neighbouring keys must not give shifted sequences
    const double deviation = operation.standard_deviation;
    for_pieces(context.threads, operation.out.count(), kPiece, [=](std::int64_t begin, std::int64_t size) {
        for (std::int64_t i = begin; i < begin + size; ++i) {
            out[i] = static_cast<float>(deviation * normal(key, first + static_cast<std::uint64_t>(i)));
        }
    });
}

}  // namespace mfsdp::device::cpu
