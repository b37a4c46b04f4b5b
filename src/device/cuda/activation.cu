#include "device/cuda/column_sums.h"
#include "device/cuda/kernels.h"
#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

namespace {

/// 1 / (1 + e^-x): 0 for very negative x, never NaN for a finite x. Values of 16 bits are computed with the GPU's own
/// exponential and reciprocal, whose error of some 2^-21 they do not show: the arithmetic would else take longer than
/// memory does.
template <class T>
[[nodiscard]] __device__ inline float sigmoid(float x) {
    if constexpr (sizeof(T) == 2) {
        return __fdividef(1.0F, 1.0F + __expf(-x));  // divisors above 2^126 give 0
    } else {
        return 1.0F / (1.0F + expf(-x));
    }
}

// 0.5 (1 + tanh(u)) = 1 / (1 + e^-2u): the second form does not cancel where the result is small.
constexpr float kTwoRootTwoOverPi = 1.59576912161F;
constexpr float kCubic = 0.044715F;

/// 2u = 2 sqrt(2/pi) (x + kCubic x^3)
[[nodiscard]] __device__ inline float gelu_argument(float x) {
    return x * kTwoRootTwoOverPi * fmaf(x * x, kCubic, 1.0F);
}

/// Derivative of x s(2u): s + x s (1 - s) 2u'. Beyond 16 it is 0 or 1 to the last bit, and x^2 must not overflow there.
template <class T>
[[nodiscard]] __device__ inline float gelu_slope(float x) {
    constexpr float kFlat = 16.0F;
    x = x < -kFlat ? -kFlat : x;  // a comparison with NaN is false: NaN passes
    x = x > kFlat ? kFlat : x;
    const float s = sigmoid<T>(gelu_argument(x));
    const float inner_slope = kTwoRootTwoOverPi * fmaf(x * x, 3.0F * kCubic, 1.0F);
    return fmaf(x * s * (1.0F - s), inner_slope, s);
}

template <class T>
__global__ void __launch_bounds__(kThreads) gelu_forward_kernel(T* out, const T* in, DenseExtent<T, T> extent) {
    for_vectors(
        extent, [=](auto at) { return load(in, at); },
        [=](auto at, auto x) {
            for (float& value : x.lane) value = value * sigmoid<T>(gelu_argument(value));
            store(out, at, x);
        });
}

/// Vectors of two and three tensors at one place.
template <int N>
struct Pair {
    Floats<N> a, b;
};
template <int N>
struct Triple {
    Floats<N> a, b, c;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    gelu_backward_kernel(T* grad_in, const T* grad_out, const T* in, DenseExtent<T, T, T> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            return Pair<decltype(at)::kLanes>{load(grad_out, at), load(in, at)};
        },
        [=](auto at, auto values) {
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) values.a.lane[i] *= gelu_slope<T>(values.b.lane[i]);
            store(grad_in, at, values.a);
        });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_forward_kernel(T* out, const T* gate, const T* up, DenseExtent<T, T, T> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            return Pair<decltype(at)::kLanes>{load(gate, at), load(up, at)};
        },
        [=](auto at, auto values) {
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) {
                const float x = values.a.lane[i];
                values.a.lane[i] = x * sigmoid<T>(x) * values.b.lane[i];
            }
            store(out, at, values.a);
        });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(T* grad_gate, T* grad_up, const T* grad_out, const T* gate, const T* up,
                           DenseExtent<T, T, T> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            return Triple<decltype(at)::kLanes>{load(grad_out, at), load(gate, at), load(up, at)};
        },
        [=](auto at, auto values) {
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) {
                const float g = values.a.lane[i], x = values.b.lane[i];
                const float s = sigmoid<T>(x);
                const float silu = x * s;
                // silu' = s + x s (1 - s) = s + silu (1 - s)
                values.b.lane[i] = g * values.c.lane[i] * fmaf(silu, 1.0F - s, s);
                values.c.lane[i] = g * silu;
            }
            store(grad_gate, at, values.b);
            store(grad_up, at, values.c);
        });
}

constexpr int kRowsAtOnce = 8;

/// partial[b, c] = sum of rows [b rows_in_block, ...) of in. A thread adds every kRowsAtOnce-th row of one vector of
/// columns, several on their way at once; then the threads of a vector are added in order.
template <class T>
__global__ void __launch_bounds__(kWarpSize* kRowsAtOnce)
    column_sum_kernel(float* partial, const T* in, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                      std::int64_t rows_in_block, bool aligned) {
    constexpr int kLanes = kLanesOf<T>;
    constexpr int kInFlight = 4;
    MFSDP_SHARED(float, sums[kRowsAtOnce][kLanes][kWarpSize]);
    const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kWarpSize + threadIdx.x) * kLanes;
    const std::int64_t lanes = columns - column;  // of the row's last vector, 0 or less beyond it
    const bool whole = aligned && lanes >= kLanes;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * rows_in_block;
    const std::int64_t end = begin + rows_in_block < rows ? begin + rows_in_block : rows;
    Floats<kLanes> sum{};
    for (std::int64_t first = begin + threadIdx.y; first < end; first += kRowsAtOnce * kInFlight) {
        Floats<kLanes> values[kInFlight]{};
        MFSDP_UNROLL
        for (int i = 0; i < kInFlight; ++i) {
            const std::int64_t row = first + i * kRowsAtOnce;
            if (row >= end) continue;
            if (whole) {
                values[i] = load<kLanes>(in + row * stride + column);
            } else {
                MFSDP_UNROLL
                for (int lane = 0; lane < kLanes; ++lane) {
                    if (lane < lanes) values[i].lane[lane] = widened(in[row * stride + column + lane]);
                }
            }
        }
        MFSDP_UNROLL
        for (int i = 0; i < kInFlight; ++i) {
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) sum.lane[lane] += values[i].lane[lane];
        }
    }
    MFSDP_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) sums[threadIdx.y][lane][threadIdx.x] = sum.lane[lane];
    __syncthreads();
    if (threadIdx.y > 0) return;
    MFSDP_UNROLL
    for (int lane = 0; lane < kLanes; ++lane) {
        if (lane >= lanes) continue;
        for (int y = 1; y < kRowsAtOnce; ++y) sum.lane[lane] += sums[y][lane][threadIdx.x];
        partial[blockIdx.y * columns + column + lane] = sum.lane[lane];
    }
}

template <class T>
void gelu_forward(const Context& context, const GeluForward& operation) {
    const auto extent = extent_of<DenseExtent<T, T>>({operation.out, operation.in});
    launch_kernel(gelu_forward_kernel<T>, extent.grid(), context.stream, data<T>(operation.out), data<T>(operation.in),
                  extent);
}

template <class T>
void gelu_backward(const Context& context, const GeluBackward& operation) {
    const auto extent = extent_of<DenseExtent<T, T, T>>({operation.grad_in, operation.grad_out, operation.in});
    launch_kernel(gelu_backward_kernel<T>, extent.grid(), context.stream, data<T>(operation.grad_in),
                  data<T>(operation.grad_out), data<T>(operation.in), extent);
}

template <class T>
void swiglu_forward(const Context& context, const SwiGluForward& operation) {
    const auto extent = extent_of<DenseExtent<T, T, T>>({operation.out, operation.gate, operation.up});
    launch_kernel(swiglu_forward_kernel<T>, extent.grid(), context.stream, data<T>(operation.out),
                  data<T>(operation.gate), data<T>(operation.up), extent);
}

template <class T>
void swiglu_backward(const Context& context, const SwiGluBackward& operation) {
    const auto extent = extent_of<DenseExtent<T, T, T>>(
        {operation.grad_gate, operation.grad_up, operation.grad_out, operation.gate, operation.up});
    launch_kernel(swiglu_backward_kernel<T>, extent.grid(), context.stream, data<T>(operation.grad_gate),
                  data<T>(operation.grad_up), data<T>(operation.grad_out), data<T>(operation.gate),
                  data<T>(operation.up), extent);
}

/// Rows of the partial sums of a column sum: enough blocks to fill a GPU, each with 32 rows or more.
RowBlocks cut_for_column_sum(std::int64_t rows, std::int64_t panels) {
    constexpr std::int64_t kBlocks = 1024;
    const std::int64_t wanted = std::min(pieces_of(rows, 4 * kRowsAtOnce), pieces_of(kBlocks, panels));
    return cut_rows(rows, wanted, kRowsAtOnce);
}

template <class T, class To>
void column_sum(const Context& context, const ColumnSum& operation) {
    const Tensor& in = operation.in;
    const std::int64_t rows = in.shape[0], columns = in.shape[1];
    const std::int64_t panels = pieces_of(columns, kWarpSize * kLanesOf<T>);
    const RowBlocks blocks = cut_for_column_sum(rows, panels);
    auto* const partial = reinterpret_cast<float*>(
        context.scratch.reserve(blocks.count * columns * static_cast<std::int64_t>(sizeof(float))));
    launch_kernel(
        column_sum_kernel<T>,
        Grid{dim3(static_cast<unsigned>(panels), static_cast<unsigned>(blocks.count)), dim3(kWarpSize, kRowsAtOnce)},
        context.stream, partial, data<T>(in), rows, columns, in.strides[0], blocks.rows_in_block,
        is_aligned(in, kLanesOf<T>, true));
    sum_partials(context, data<To>(operation.out), partial, blocks.count, columns);
}

}  // namespace

void run(const Context& context, const GeluForward& operation) {
    with_value_type(operation.in.dtype,
                    [&](auto type) { gelu_forward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const GeluBackward& operation) {
    with_value_type(operation.in.dtype,
                    [&](auto type) { gelu_backward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const SwiGluForward& operation) {
    with_value_type(operation.gate.dtype,
                    [&](auto type) { swiglu_forward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const SwiGluBackward& operation) {
    with_value_type(operation.gate.dtype,
                    [&](auto type) { swiglu_backward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const ColumnSum& operation) {
    if (operation.out.empty()) return;
    with_value_type(operation.in.dtype, [&](auto from) {
        with_value_type(operation.out.dtype, [&](auto to) {
            column_sum<ElementOf<decltype(from)>, ElementOf<decltype(to)>>(context, operation);
        });
    });
}

}  // namespace mfsdp::device::cuda
