#include "mfsdp/device/ops/optimizer.h"

#include "device/cpu/element.h"
#include "device/cpu/kernels.h"
#include "device/cpu/pieces.h"
#include "device/cpu/square_sum.h"
#include "device/cpu/transpose_block.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace mfsdp::device::cpu {

namespace {

/// Adds sums of squares of blocks, which come in the order of the matrix: blocks of a row, then rows.
class NormOfBlocks {
  public:
    explicit NormOfBlocks(std::int64_t blocks_of_row) : blocks_of_row_(blocks_of_row) {}

    void add(double sum) {
        row_ += sum;
        if (++block_ < blocks_of_row_) return;
        total_ += row_;
        row_ = 0.0;
        block_ = 0;
    }
    [[nodiscard]] double norm() const { return std::sqrt(total_); }

  private:
    std::int64_t blocks_of_row_, block_ = 0;
    double row_ = 0.0, total_ = 0.0;
};

template <class T>
double frobenius_norm(const Context& context, const Tensor& matrix, const T* in) {
    // Blocks are summed in parallel, a wave at a time, and their sums added in order by the calling thread.
    constexpr std::int64_t kWave = 1024;
    constexpr std::int64_t kBlocksPerPiece = 8;
    const std::int64_t columns = matrix.columns(), stride = row_stride(matrix);
    const std::int64_t blocks_of_row = square_sums_of(columns);
    const std::int64_t blocks = matrix.rows() * blocks_of_row;
    std::array<double, kWave> sums{};
    NormOfBlocks result(blocks_of_row);
    for (std::int64_t wave = 0; wave < blocks; wave += kWave) {
        const std::int64_t wave_blocks = std::min(kWave, blocks - wave);
        for_pieces(context.threads, wave_blocks, kBlocksPerPiece, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t i = first; i < first + count; ++i) {
                const std::int64_t row = (wave + i) / blocks_of_row;
                const std::int64_t begin = (wave + i) % blocks_of_row * kSquareSumBlock;
                sums[static_cast<std::size_t>(i)] =
                    square_sum_of_block(in + row * stride + begin, std::min(kSquareSumBlock, columns - begin));
            }
        });
        for (std::int64_t i = 0; i < wave_blocks; ++i) result.add(sums[static_cast<std::size_t>(i)]);
    }
    return result.norm();
}

/// How elements are divided by a norm: see DivideByNorm.
class Divisor {
  public:
    explicit Divisor(double norm) : norm_(norm), single_(static_cast<float>(norm)) {
        const bool fits = single_ >= std::numeric_limits<float>::min() && single_ <= std::numeric_limits<float>::max();
        in_float_ = fits || !std::isfinite(norm);
    }

    template <class T>
    void divide(T* target, const float* source, std::int64_t size) const {
        if (norm_ == 0.0) {
            std::fill_n(target, size, rounded<T>(0.0F));
        } else if (in_float_) {
            for_vectors(size, [=, divisor = broadcast(single_)](std::int64_t i, std::int64_t lanes) {
                store_lanes(target + i, load_lanes(source + i, lanes) / divisor, lanes);
            });
        } else {
            for (std::int64_t i = 0; i < size; ++i) {
                target[i] = rounded<T>(static_cast<float>(static_cast<double>(source[i]) / norm_));
            }
        }
    }

  private:
    double norm_;
    float single_;
    bool in_float_ = false;
};

template <class T>
void divide(const Context& context, const DivideByNorm& operation, const Divisor& divisor) {
    T* const out = context.data<T>(operation.out);
    const float* const in = context.data<const float>(operation.in);
    const std::int64_t in_stride = row_stride(operation.in), out_stride = row_stride(operation.out);
    for_row_pieces(context.threads, operation.in.rows(), operation.in.columns(),
                   [=](std::int64_t row, std::int64_t begin, std::int64_t size) {
                       divisor.divide(out + row * out_stride + begin, in + row * in_stride + begin, size);
                   });
}

/// The same with rows that become columns, a block at a time.
template <class T>
void divide_transposed(const Context& context, const DivideByNorm& operation, const Divisor& divisor) {
    constexpr std::int64_t kSide = kTransposeBlock<float>;
    T* const out = context.data<T>(operation.out);
    const float* const in = context.data<const float>(operation.in);
    const std::int64_t rows = operation.in.rows(), columns = operation.in.columns();
    const std::int64_t in_stride = row_stride(operation.in), out_stride = row_stride(operation.out);
    const std::int64_t down = (rows + kSide - 1) / kSide, across = (columns + kSide - 1) / kSide;
    for_pieces(
        context.threads, down * across, kPieceElements / (kSide * kSide), [=](std::int64_t first, std::int64_t count) {
            float turned[kSide * kSide];
            for (std::int64_t block = first; block < first + count; ++block) {
                const std::int64_t row = block / across * kSide, column = block % across * kSide;
                const std::int64_t height = std::min(kSide, rows - row), width = std::min(kSide, columns - column);
                transpose_part(turned, kSide, in + row * in_stride + column, in_stride, height, width);
                for (std::int64_t c = 0; c < width; ++c) {
                    divisor.divide(out + (column + c) * out_stride + row, turned + c * kSide, height);
                }
            }
        });
}

}  // namespace

void run(const Context& context, const BlockSquareSums& operation) {
    double* const sums = context.data<double>(operation.square_sums);
    const float* const in = context.data<const float>(operation.in);
    const std::int64_t rows = operation.in.rows(), columns = operation.in.columns(), stride = row_stride(operation.in);
    const auto row = [=](std::int64_t r, std::int64_t begin, std::int64_t /*size*/) { return in + r * stride + begin; };
    if (operation.by_columns) {
        square_sums_by_columns(context.threads, rows, columns, sums, row);
    } else {
        square_sums_by_rows(context.threads, rows, columns, sums, row);
    }
}

void run(const Context& context, const FrobeniusNorm& operation) {
    with_float_type(operation.in.dtype, [&](auto type) {
        const auto* const in = context.data<const ElementOf<decltype(type)>>(operation.in);
        *context.data<double>(operation.norm) = frobenius_norm(context, operation.in, in);
    });
}

void run(const Context& context, const NormOfSquareSums& operation) {
    const double* const sums = context.data<const double>(operation.square_sums);
    NormOfBlocks result(operation.square_sums.columns());
    for (std::int64_t i = 0; i < operation.square_sums.count(); ++i) result.add(sums[i]);
    *context.data<double>(operation.norm) = result.norm();
}

void run(const Context& context, const DivideByNorm& operation) {
    const Divisor divisor(*context.data<const double>(operation.norm));
    with_float_type(operation.out.dtype, [&](auto type) {
        using T = ElementOf<decltype(type)>;
        if (operation.transposed) {
            divide_transposed<T>(context, operation, divisor);
        } else {
            divide<T>(context, operation, divisor);
        }
    });
}

}  // namespace mfsdp::device::cpu
