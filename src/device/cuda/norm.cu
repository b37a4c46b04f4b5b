#include "device/cuda/column_sums.h"
#include "device/cuda/kernels.h"
#include "device/cuda/reduce.h"
#include "device/cuda/vectors.h"

#include <algorithm>
#include <bit>

namespace mfsdp::device::cuda {

namespace {

// A row belongs to the threads of one threadIdx.y, vector v of the row to the thread v mod blockDim.x. Where a row is
// not too long each thread keeps its kHeld vectors in registers, so that memory is read once; longer rows (kHeld = 0)
// are read again where their values are needed again.

/// Threads of a block, unless a row has more.
constexpr int kBlock = 256;
/// The most threads of a block and vectors that each of them keeps.
struct Limits {
    int threads, held;
};
constexpr Limits kForward{1024, 4};
/// Backward a thread keeps two or three vectors for each of the row, and of sums as many as its norm has parameters.
template <bool kCentred>
constexpr Limits kBackward{512, kCentred ? 2 : 4};

/// The shape of a block for rows of a number of vectors.
struct RowThreads {
    int across = 1;  ///< threads of a row
    int down = 1;    ///< rows at once
    int held = 0;    ///< vectors of a thread: 1, 2, 4 or, if the row is too long to be kept, 0

    [[nodiscard]] dim3 threads() const { return {static_cast<unsigned>(across), static_cast<unsigned>(down)}; }
};

RowThreads threads_for_rows(std::int64_t columns, int lanes, const Limits& limits) {
    const std::int64_t vectors = pieces_of(columns, lanes);
    RowThreads result;
    if (vectors <= kWarpSize) {
        result.across = static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(vectors)));
        result.held = 1;
    } else if (vectors <= std::int64_t{limits.held} * limits.threads) {
        result.across = static_cast<int>(pieces_of(vectors, limits.held * kWarpSize)) * kWarpSize;
        result.held = limits.held;
    } else {
        result.across = limits.threads;
    }
    result.down = std::max(1, kBlock / result.across);
    return result;
}

/// Calls body(held) with the number of held vectors as a constant: kMost, 1 or 0.
template <int kMost, class Body>
void with_held(int held, const Body& body) {
    if (held == 1) return body(std::integral_constant<int, 1>{});
    if (held == 0) return body(std::integral_constant<int, 0>{});
    body(std::integral_constant<int, kMost>{});
}

/// Calls body(i, column, lanes) for the thread's vectors of a row, lanes being the elements before the row's end.
template <int kLanes, int kHeld, class Body>
__device__ inline void for_row_vectors(std::int64_t columns, const Body& body) {
    const auto visit = [&](int i) {
        const std::int64_t column = (static_cast<std::int64_t>(i) * blockDim.x + threadIdx.x) * kLanes;
        if (column >= columns) return false;
        body(i, column, columns - column < kLanes ? static_cast<int>(columns - column) : kLanes);
        return true;
    };
    if constexpr (kHeld > 0) {
        MFSDP_UNROLL
        for (int i = 0; i < kHeld; ++i) visit(i);
    } else {
        for (int i = 0; visit(i); ++i) {
        }
    }
}

template <class T, int N>
__device__ inline void store_row_vector(T* target, const Floats<N>& values, int lanes, bool aligned) {
    if (aligned) return store(target, values);
    MFSDP_UNROLL
    for (int lane = 0; lane < N; ++lane) {
        if (lane < lanes) target[lane] = rounded<T>(values.lane[lane]);
    }
}

/// The vectors of one row that are the calling thread's: kept in registers, or read whenever they are asked for.
template <class T, int kHeld>
class RowPart {
  public:
    static constexpr int kLanes = kLanesOf<T>;

    /// `columns` is 0 for a row that is not there; `aligned` where all of the row's vectors may be accessed as such.
    __device__ RowPart(const T* row, std::int64_t columns, bool aligned)
        : row_(row), columns_(columns), aligned_(aligned) {
        if constexpr (kHeld > 0) {
            MFSDP_UNROLL
            for (int i = 0; i < kHeld; ++i) {
                held_[i] = {};
                const std::int64_t column = column_of(i);
                if (aligned && column < columns) held_[i] = load_packed<kLanes>(row + column);
            }
            if (aligned) return;
            MFSDP_UNROLL
            for (int i = 0; i < kHeld; ++i) held_[i] = packed<T>(load_elements(column_of(i)));
        }
    }

    /// The thread's vector `i`, at column_of(i); elements beyond the row's end are 0.
    [[nodiscard]] __device__ Floats<kLanes> operator[](int i) const {
        if constexpr (kHeld > 0) {
            return widened(held_[i]);
        } else {
            const std::int64_t column = column_of(i);
            return aligned_ ? load<kLanes>(row_ + column) : load_elements(column);
        }
    }

    /// Adds another row, rounds to the type of values, and writes the sum, which this then is.
    __device__ void add(const T* other, T* sum) {
        const RowPart<T, 0> added(other, columns_, aligned_);
        for_row_vectors<kLanes, kHeld>(columns_, [&](int i, std::int64_t column, int lanes) {
            Floats<kLanes> values = (*this)[i];
            const Floats<kLanes> others = added[i];
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) values.lane[lane] += others.lane[lane];
            if constexpr (kHeld > 0) held_[i] = packed<T>(values);
            store_row_vector(sum + column, values, lanes, aligned_);
        });
        row_ = sum;
    }

    [[nodiscard]] __device__ static std::int64_t column_of(int i) {
        return (static_cast<std::int64_t>(i) * blockDim.x + threadIdx.x) * kLanes;
    }

  private:
    [[nodiscard]] __device__ Floats<kLanes> load_elements(std::int64_t column) const {
        Floats<kLanes> result;
        MFSDP_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) {
            result.lane[lane] = column + lane < columns_ ? widened(row_[column + lane]) : 0.0F;
        }
        return result;
    }

    const T* row_;
    std::int64_t columns_;
    bool aligned_;
    Packed<T, kLanes> held_[kHeld > 0 ? kHeld : 1];
};

template <class T>
struct ForwardArguments {
    View<T> out;
    View<const T> in;
    float* mean;  ///< null for RmsNorm
    float* reciprocal;
    const T* weight;
    const T* bias;
    std::int64_t rows, columns;
    float epsilon;
    bool aligned;
    bool adds;  ///< the residual stream, to a sum that takes the place of `in`
    View<const T> residual;
    View<T> sum;
};

/// LayerNorm, or RmsNorm if not kCentred: without mean and bias.
template <class T, bool kCentred, int kHeld>
__global__ void __launch_bounds__(kForward.threads) norm_forward_kernel(ForwardArguments<T> arguments) {
    constexpr int kLanes = kLanesOf<T>;
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
    const std::int64_t columns = row < arguments.rows ? arguments.columns : 0;
    const bool aligned = arguments.aligned;
    const auto count = static_cast<float>(arguments.columns);
    const std::int64_t present = columns > 0 ? row : 0;
    RowPart<T, kHeld> x(arguments.in.row(present), columns, aligned);
    if (arguments.adds) x.add(arguments.residual.row(present), arguments.sum.row(present));
    float mean = 0.0F;
    if constexpr (kCentred) {
        float sum[1] = {0.0F};
        for_row_vectors<kLanes, kHeld>(columns, [&](int i, std::int64_t, int) {
            const auto values = x[i];
            for (const float value : values.lane) sum[0] += value;
        });
        sum_over_row(sum);
        mean = sum[0] / count;
    }
    // From the differences: a difference of sums of squares would cancel.
    float squares[1] = {0.0F};
    for_row_vectors<kLanes, kHeld>(columns, [&](int i, std::int64_t, int lanes) {
        const auto values = x[i];
        MFSDP_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) {
            const float difference = lane < lanes ? values.lane[lane] - mean : 0.0F;
            squares[0] = fmaf(difference, difference, squares[0]);
        }
    });
    sum_over_row(squares);
    const float reciprocal = 1.0F / sqrtf(squares[0] / count + arguments.epsilon);
    const RowPart<T, 0> weight(arguments.weight, columns, aligned), bias(arguments.bias, columns, aligned);
    T* const out = arguments.out.row(present);
    for_row_vectors<kLanes, kHeld>(columns, [&](int i, std::int64_t column, int lanes) {
        auto values = x[i];
        const auto factors = weight[i];
        if constexpr (kCentred) {
            const auto terms = bias[i];
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) {
                values.lane[lane] = fmaf((values.lane[lane] - mean) * reciprocal, factors.lane[lane], terms.lane[lane]);
            }
        } else {
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) values.lane[lane] *= reciprocal * factors.lane[lane];
        }
        store_row_vector(out + column, values, lanes, aligned);
    });
    if (threadIdx.x == 0 && columns > 0) {
        if constexpr (kCentred) arguments.mean[row] = mean;
        arguments.reciprocal[row] = reciprocal;
    }
}

template <class T>
struct BackwardArguments {
    View<T> grad_in;
    View<const T> grad_out, in;
    const float* shift;  ///< means; null for RmsNorm
    const float* reciprocal;
    const T* weight;
    float* weight_sums;  ///< [blocks, columns]: sums over the rows of a block; null where not wanted
    float* bias_sums;    ///< likewise
    std::int64_t rows, columns, rows_in_block;
    bool accumulate, aligned;
};

/// What one thread adds up over rows: g x and g of its columns, kept in registers.
template <int kLanes, int kHeld>
struct ColumnSums {
    Floats<kLanes> weight[kHeld > 0 ? kHeld : 1];
    Floats<kLanes> bias[kHeld > 0 ? kHeld : 1];
};

/// Adds the column sums of the block's rows threadIdx.y = 0, 1, ... in this order and writes the block's.
template <class T, bool kCentred, int kHeld>
__device__ inline void write_column_sums(const BackwardArguments<T>& arguments,
                                         const ColumnSums<kLanesOf<T>, kHeld>& sums) {
    constexpr int kLanes = kLanesOf<T>;
    MFSDP_DYNAMIC_SHARED(float, shared);  // [down][columns] for one sum after the other
    const std::int64_t columns = arguments.columns;
    const auto write = [&](float* out, const Floats<kLanes>* own) {
        if (out == nullptr) return;
        __syncthreads();
        for_row_vectors<kLanes, kHeld>(columns, [&](int i, std::int64_t column, int lanes) {
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) {
                if (lane < lanes) shared[threadIdx.y * columns + column + lane] = own[i].lane[lane];
            }
        });
        __syncthreads();
        const auto thread = static_cast<std::int64_t>(threadIdx.y * blockDim.x + threadIdx.x);
        for (std::int64_t column = thread; column < columns; column += blockDim.x * blockDim.y) {
            float sum = shared[column];
            for (unsigned y = 1; y < blockDim.y; ++y) sum += shared[y * columns + column];
            out[blockIdx.x * columns + column] = sum;
        }
    };
    write(arguments.weight_sums, sums.weight);
    if constexpr (kCentred) write(arguments.bias_sums, sums.bias);
}

/// grad_in (+)= reciprocal * (g - mean(g) - x * mean(g x)) with g = grad_out * weight and x the normalised input, which
/// is (in - shift) * reciprocal; mean(g) and the shift are left out for RmsNorm. A row is complete in registers, or its
/// sums are, before the first of it is stored: grad_in may be grad_out or in.
template <class T, bool kCentred, int kHeld>
__global__ void __launch_bounds__(kHeld == 1 ? kBlock : kBackward<kCentred>.threads)
    norm_backward_kernel(BackwardArguments<T> arguments) {
    constexpr int kLanes = kLanesOf<T>;
    const bool aligned = arguments.aligned;
    const auto count = static_cast<float>(arguments.columns);
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * arguments.rows_in_block;
    const std::int64_t end =
        begin + arguments.rows_in_block < arguments.rows ? begin + arguments.rows_in_block : arguments.rows;
    const RowPart<T, 0> weight(arguments.weight, arguments.columns, aligned);
    ColumnSums<kLanes, kHeld> totals{};
    for (std::int64_t first = begin; first < end; first += blockDim.y) {
        const bool inside = first + threadIdx.y < end;
        const std::int64_t row = inside ? first + threadIdx.y : first;
        const std::int64_t columns = inside ? arguments.columns : 0;
        const RowPart<T, kHeld> gradient(arguments.grad_out.row(row), columns, aligned);
        const RowPart<T, kHeld> x(arguments.in.row(row), columns, aligned);
        T* const grad_in = arguments.grad_in.row(row);
        const RowPart<T, kHeld> before(grad_in, arguments.accumulate ? columns : 0, aligned);
        const float shift = kCentred ? arguments.shift[row] : 0.0F;
        const float reciprocal = arguments.reciprocal[row];
        const auto normal = [=](float value) { return (kCentred ? value - shift : value) * reciprocal; };
        float sums[kCentred ? 2 : 1] = {};  // of g x and g
        for_row_vectors<kLanes, kHeld>(columns, [&](int i, std::int64_t, int) {
            const auto out = gradient[i], in = x[i], factors = weight[i];
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) {  // elements beyond the end have a gradient of 0
                const float g = out.lane[lane] * factors.lane[lane];
                sums[0] = fmaf(g, normal(in.lane[lane]), sums[0]);
                if constexpr (kCentred) sums[1] += g;
                if constexpr (kHeld > 0) {
                    totals.weight[i].lane[lane] =
                        fmaf(out.lane[lane], normal(in.lane[lane]), totals.weight[i].lane[lane]);
                    if constexpr (kCentred) totals.bias[i].lane[lane] += out.lane[lane];
                }
            }
        });
        sum_over_row(sums);
        const float mean_product = sums[0] / count;
        const float mean_gradient = kCentred ? sums[sizeof(sums) / sizeof(float) - 1] / count : 0.0F;
        for_row_vectors<kLanes, kHeld>(columns, [&](int i, std::int64_t column, int lanes) {
            auto out = gradient[i];
            const auto in = x[i], factors = weight[i];
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) {
                float g = out.lane[lane] * factors.lane[lane];
                if constexpr (kCentred) g -= mean_gradient;
                out.lane[lane] = fmaf(normal(in.lane[lane]), -mean_product, g) * reciprocal;
            }
            if (arguments.accumulate) {
                const auto old = before[i];
                MFSDP_UNROLL
                for (int lane = 0; lane < kLanes; ++lane) out.lane[lane] += old.lane[lane];
            }
            store_row_vector(grad_in + column, out, lanes, aligned);
        });
    }
    if constexpr (kHeld > 0) write_column_sums<T, kCentred, kHeld>(arguments, totals);
}

/// The column sums of rows too long to be kept: each thread adds up one column of the block's rows.
template <class T, bool kCentred>
__global__ void __launch_bounds__(kThreads) norm_column_sums_kernel(BackwardArguments<T> arguments) {
    const std::int64_t columns = arguments.columns;
    const std::int64_t column = global_index();
    if (column >= columns) return;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * arguments.rows_in_block;
    const std::int64_t end =
        begin + arguments.rows_in_block < arguments.rows ? begin + arguments.rows_in_block : arguments.rows;
    float weight_sum = 0.0F, bias_sum = 0.0F;
    MFSDP_UNROLL_BY_4
    for (std::int64_t row = begin; row < end; ++row) {
        const float g = widened(arguments.grad_out.row(row)[column]);
        const float x = widened(arguments.in.row(row)[column]) - (kCentred ? arguments.shift[row] : 0.0F);
        weight_sum = fmaf(g, x * arguments.reciprocal[row], weight_sum);
        bias_sum += g;
    }
    if (arguments.weight_sums != nullptr) arguments.weight_sums[blockIdx.y * columns + column] = weight_sum;
    if (kCentred && arguments.bias_sums != nullptr) arguments.bias_sums[blockIdx.y * columns + column] = bias_sum;
}

template <class T, bool kCentred>
void norm_forward(const Context& context, const ForwardArguments<T>& arguments) {
    if (arguments.rows == 0) return;
    const RowThreads shape = threads_for_rows(arguments.columns, kLanesOf<T>, kForward);
    const auto blocks = static_cast<unsigned>(pieces_of(arguments.rows, shape.down));
    with_held<kForward.held>(shape.held, [&](auto held) {
        launch_kernel(norm_forward_kernel<T, kCentred, held>, Grid{blocks, shape.threads()}, context.stream, arguments);
    });
}

/// The two blocks that each multiprocessor of the largest GPUs runs at a time, and more of them for short rows, of
/// which a block has little in flight.
std::int64_t backward_blocks(const RowThreads& shape) { return shape.held == 1 ? 1024 : 256; }

/// T is the type of values, G that of the gradients of weight and bias.
template <class T, bool kCentred, class G>
void norm_backward(const Context& context, BackwardArguments<T> arguments, G* grad_weight, G* grad_bias) {
    constexpr std::int64_t kRowsOfLongSums = 32, kMostBlocks = 4096;
    const RowThreads shape = threads_for_rows(arguments.columns, kLanesOf<T>, kBackward<kCentred>);
    const bool held = shape.held > 0, sums_wanted = grad_weight != nullptr || grad_bias != nullptr;
    const RowBlocks blocks = cut_rows(arguments.rows, backward_blocks(shape), shape.down);
    const RowBlocks sums =
        held ? blocks
             : cut_rows(arguments.rows, std::min<std::int64_t>(kMostBlocks, pieces_of(arguments.rows, kRowsOfLongSums)),
                        1);
    const std::int64_t columns = arguments.columns;
    ScratchPlan plan;
    const auto weight_piece = plan.add<float>(grad_weight == nullptr ? 0 : sums.count * columns);
    const auto bias_piece = plan.add<float>(grad_bias == nullptr ? 0 : sums.count * columns);
    std::byte* const base = plan.bytes() > 0 ? context.scratch.reserve(plan.bytes()) : nullptr;
    if (grad_weight != nullptr) arguments.weight_sums = weight_piece.at(base);
    if (grad_bias != nullptr) arguments.bias_sums = bias_piece.at(base);
    if (!held && sums_wanted) {  // first: grad_input may take the place of the input
        arguments.rows_in_block = sums.rows_in_block;
        const dim3 grid(static_cast<unsigned>(pieces_of(columns, kThreads)), static_cast<unsigned>(sums.count));
        launch_kernel(norm_column_sums_kernel<T, kCentred>, Grid{grid, kThreads}, context.stream, arguments);
    }
    arguments.rows_in_block = blocks.rows_in_block;
    const std::int64_t shared_floats = held && sums_wanted ? columns * shape.down : 0;
    const Grid grid{static_cast<unsigned>(blocks.count), shape.threads(),
                    static_cast<std::size_t>(shared_floats) * sizeof(float)};
    with_held<kBackward<kCentred>.held>(shape.held, [&](auto constant) {
        launch_kernel(norm_backward_kernel<T, kCentred, constant>, grid, context.stream, arguments);
    });
    if (grad_weight != nullptr) sum_partials(context, grad_weight, arguments.weight_sums, sums.count, columns);
    if (grad_bias != nullptr) sum_partials(context, grad_bias, arguments.bias_sums, sums.count, columns);
}

/// Whether vectors may be used for all rows of these tensors.
template <class T>
bool rows_are_aligned(std::int64_t columns, std::initializer_list<Tensor> tensors) {
    constexpr int kLanes = kLanesOf<T>;
    return columns % kLanes == 0 && std::all_of(tensors.begin(), tensors.end(),
                                                [](const Tensor& tensor) { return is_aligned(tensor, kLanes, true); });
}

/// What both forward operations share; `Op` is one of them.
template <class T, class Op>
ForwardArguments<T> forward_arguments(const Op& operation) {
    ForwardArguments<T> arguments{};
    arguments.rows = operation.input.rows();
    arguments.columns = operation.input.columns();
    arguments.out = view_of<T>(operation.out);
    arguments.in = view_of<const T>(operation.input);
    arguments.weight = data<const T>(operation.weight);
    arguments.epsilon = operation.epsilon;
    arguments.aligned = rows_are_aligned<T>(arguments.columns, {operation.out, operation.input, operation.weight});
    arguments.adds = operation.residual.defined();
    if (arguments.adds) {
        arguments.residual = view_of<const T>(operation.residual);
        arguments.sum = view_of<T>(operation.sum);
        arguments.aligned &= rows_are_aligned<T>(arguments.columns, {operation.residual, operation.sum});
    }
    return arguments;
}

template <class T>
void layer_norm_forward(const Context& context, const LayerNormForward& operation) {
    auto arguments = forward_arguments<T>(operation);
    arguments.mean = data<float>(operation.mean);
    arguments.reciprocal = data<float>(operation.reciprocal_std);
    arguments.bias = data<const T>(operation.bias);
    arguments.aligned &= rows_are_aligned<T>(arguments.columns, {operation.bias});
    norm_forward<T, true>(context, arguments);
}

template <class T>
void rms_norm_forward(const Context& context, const RmsNormForward& operation) {
    auto arguments = forward_arguments<T>(operation);
    arguments.reciprocal = data<float>(operation.reciprocal_rms);
    norm_forward<T, false>(context, arguments);
}

/// What both backward operations share; `Op` is one of them.
template <class T, class Op>
BackwardArguments<T> backward_arguments(const Op& operation) {
    BackwardArguments<T> arguments{};
    arguments.rows = operation.input.rows();
    arguments.columns = operation.input.columns();
    arguments.grad_in = view_of<T>(operation.grad_input);
    arguments.grad_out = view_of<const T>(operation.grad_out);
    arguments.in = view_of<const T>(operation.input);
    arguments.weight = data<const T>(operation.weight);
    arguments.accumulate = operation.accumulate_input;
    arguments.aligned = rows_are_aligned<T>(
        arguments.columns, {operation.grad_input, operation.grad_out, operation.input, operation.weight});
    return arguments;
}

template <class T, class G>
void layer_norm_backward(const Context& context, const LayerNormBackward& operation) {
    auto arguments = backward_arguments<T>(operation);
    arguments.shift = data<const float>(operation.mean);
    arguments.reciprocal = data<const float>(operation.reciprocal_std);
    norm_backward<T, true>(context, arguments, data<G>(operation.grad_weight), data<G>(operation.grad_bias));
}

template <class T, class G>
void rms_norm_backward(const Context& context, const RmsNormBackward& operation) {
    auto arguments = backward_arguments<T>(operation);
    arguments.reciprocal = data<const float>(operation.reciprocal_rms);
    norm_backward<T, false, G>(context, arguments, data<G>(operation.grad_weight), nullptr);
}

}  // namespace

void run(const Context& context, const LayerNormForward& operation) {
    with_value_type(operation.input.dtype,
                    [&](auto type) { layer_norm_forward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const LayerNormBackward& operation) {
    const Tensor& wanted = operation.grad_weight.defined() ? operation.grad_weight : operation.grad_bias;
    with_value_type(operation.input.dtype, [&](auto type) {
        with_value_type(wanted.dtype, [&](auto gradient) {
            layer_norm_backward<ElementOf<decltype(type)>, ElementOf<decltype(gradient)>>(context, operation);
        });
    });
}

void run(const Context& context, const RmsNormForward& operation) {
    with_value_type(operation.input.dtype,
                    [&](auto type) { rms_norm_forward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const RmsNormBackward& operation) {
    with_value_type(operation.input.dtype, [&](auto type) {
        with_value_type(operation.grad_weight.dtype, [&](auto gradient) {
            rms_norm_backward<ElementOf<decltype(type)>, ElementOf<decltype(gradient)>>(context, operation);
        });
    });
}

}  // namespace mfsdp::device::cuda
