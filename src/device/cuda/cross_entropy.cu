#include "mfsdp/device/ops/cross_entropy.h"

#include "device/cuda/kernels.h"
#include "device/cuda/reduce.h"
#include "device/cuda/vectors.h"

#include <cmath>

namespace mfsdp::device::cuda {

namespace {

constexpr int kLanes = kLanesOf<float>;
/// Vectors of a row that a thread loads at once: a panel of kVocabularyPanelRows columns is one round.
constexpr int kInFlight = 4;
constexpr int kMostThreads = 256;

[[nodiscard]] int threads_for_row(std::int64_t columns) {
    return threads_for(pieces_of(columns, kLanes * kInFlight), kMostThreads);
}

/// A maximum and the sum of e^(x - maximum) over some of a row's values. While all of these are -infinity the sum is
/// taken as if the maximum were 0, so that it is 0 and not NaN.
struct Exponentials {
    float maximum = -INFINITY, sum = 0.0F;
};

[[nodiscard]] __device__ inline float reference_of(float maximum) { return maximum == -INFINITY ? 0.0F : maximum; }

/// Takes in kCount values at once; NaN is passed over by the maximum and shows in the sum.
template <int kCount>
__device__ inline void add(Exponentials& total, const float (&values)[kCount]) {
    float largest = total.maximum;
    MFSDP_UNROLL
    for (int i = 0; i < kCount; ++i) largest = fmaxf(values[i], largest);
    const float reference = reference_of(largest);
    float sum = total.maximum == largest ? total.sum : total.sum * expf(total.maximum - reference);
    MFSDP_UNROLL
    for (int i = 0; i < kCount; ++i) sum += expf(values[i] - reference);
    total = {largest, sum};
}

struct LogSumExpArguments {
    float* maximum;
    float* sum;
    float* target_logit;
    const float* logits;
    const std::int32_t* targets;
    std::int64_t columns, row_stride, panel_begin;
    bool first, aligned;
};

/// One row to a block. Every thread folds its own columns as they come, so the row is read once; their sums are then
/// brought to the row's maximum.
__global__ void __launch_bounds__(kMostThreads) log_sum_exp_kernel(LogSumExpArguments arguments) {
    const std::int64_t row = blockIdx.x, columns = arguments.columns;
    const float* const values = arguments.logits + row * arguments.row_stride;
    Exponentials own;
    const std::int64_t stride = blockDim.x * kLanes;  // between the vectors of a thread
    for (std::int64_t begin = threadIdx.x * kLanes; begin < columns; begin += stride * kInFlight) {
        float loaded[kLanes * kInFlight];
        MFSDP_UNROLL
        for (int i = 0; i < kInFlight; ++i) {
            const std::int64_t column = begin + i * stride;
            Floats<kLanes> vector{};
            const bool whole = arguments.aligned && column + kLanes <= columns;
            if (whole) vector = load<kLanes>(values + column);
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) {
                if (!whole) vector.lane[lane] = column + lane < columns ? values[column + lane] : -INFINITY;
                loaded[i * kLanes + lane] = vector.lane[lane];
            }
        }
        add(own, loaded);
    }
    const float largest = largest_of_row(own.maximum);
    float total[1] = {own.maximum == largest ? own.sum : own.sum * expf(own.maximum - reference_of(largest))};
    sum_over_row(total);
    if (threadIdx.x > 0) return;
    const std::int32_t target = arguments.targets[row];
    const std::int64_t column = target - arguments.panel_begin;
    if (target == kIgnoredTarget) {
        if (arguments.first) arguments.target_logit[row] = 0.0F;
    } else if (column >= 0 && column < columns) {
        arguments.target_logit[row] = values[column];
    }
    if (arguments.first) {
        arguments.maximum[row] = largest;
        arguments.sum[row] = total[0];
        return;
    }
    const float before = arguments.maximum[row];
    const float together = largest > before ? largest : before;
    arguments.sum[row] = fmaf(arguments.sum[row], expf(before - together), total[0] * expf(largest - together));
    arguments.maximum[row] = together;
}

[[nodiscard]] __device__ inline double log_z(float maximum, float sum) {
    return static_cast<double>(maximum) + log(static_cast<double>(sum));
}

constexpr int kLossThreads = 1024;

__global__ void __launch_bounds__(kLossThreads)
    loss_sum_kernel(double* loss_sum, std::int64_t* target_count, double* log_z_squares, const float* maximum,
                    const float* sum, const float* target_logit, const std::int32_t* targets, std::int64_t tokens) {
    double sums[3] = {0.0, 0.0, 0.0};  // losses, squares, number of tokens
    for (std::int64_t i = threadIdx.x; i < tokens; i += blockDim.x) {
        if (targets[i] == kIgnoredTarget) continue;
        const double log_sum_exp = log_z(maximum[i], sum[i]);
        sums[0] += static_cast<double>(static_cast<float>(log_sum_exp - static_cast<double>(target_logit[i])));
        sums[1] = fma(log_sum_exp, log_sum_exp, sums[1]);
        sums[2] += 1.0;
    }
    sum_over_row(sums);
    if (threadIdx.x > 0) return;
    *loss_sum = sums[0];
    *log_z_squares = sums[1];
    *target_count = static_cast<std::int64_t>(sums[2]);
}

template <class T>
struct GradientArguments {
    T* grad;
    const float* logits;
    const float* maximum;
    const float* sum;
    const std::int32_t* targets;
    std::int64_t columns, row_stride, grad_stride, panel_begin;
    float z_loss;
    bool aligned;
};

/// (1 + 2 z_loss log Z) / sum
[[nodiscard]] __device__ inline float gradient_factor(float maximum, float sum, float z_loss) {
    if (z_loss == 0.0F) return 1.0F / sum;
    const double slope = 2.0 * static_cast<double>(z_loss) * log_z(maximum, sum);
    return static_cast<float>((1.0 + slope) / static_cast<double>(sum));
}

/// One row to a block. Elements are computed and rounded once each, also the target's, after its subtraction.
template <class T>
__global__ void __launch_bounds__(kMostThreads) cross_entropy_backward_kernel(GradientArguments<T> arguments) {
    MFSDP_SHARED(float, factor_of_row[1]);
    const std::int64_t row = blockIdx.x, columns = arguments.columns;
    const float* const logits = arguments.logits + row * arguments.row_stride;
    T* const grad = arguments.grad + row * arguments.grad_stride;
    const bool ignored = arguments.targets[row] == kIgnoredTarget;
    const float maximum = arguments.maximum[row];
    if (threadIdx.x == 0) factor_of_row[0] = gradient_factor(maximum, arguments.sum[row], arguments.z_loss);
    __syncthreads();
    const float factor = factor_of_row[0];
    const std::int64_t target = arguments.targets[row] - arguments.panel_begin;
    const auto gradient = [=](float logit, std::int64_t column) {
        const float probability = expf(logit - maximum) * factor;
        const float difference = column == target ? probability - 1.0F : probability;
        return ignored ? 0.0F : difference;
    };
    const std::int64_t whole = arguments.aligned ? columns / kLanes * kLanes : 0;
    const std::int64_t stride = blockDim.x * kLanes;  // between the vectors of a thread
    for (std::int64_t begin = threadIdx.x * kLanes; begin < whole; begin += stride * kInFlight) {
        Floats<kLanes> values[kInFlight]{};
        MFSDP_UNROLL
        for (int i = 0; i < kInFlight; ++i) {
            const std::int64_t column = begin + i * stride;
            if (column < whole) values[i] = load<kLanes>(logits + column);
        }
        MFSDP_UNROLL
        for (int i = 0; i < kInFlight; ++i) {
            const std::int64_t column = begin + i * stride;
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) {
                values[i].lane[lane] = gradient(values[i].lane[lane], column + lane);
            }
            if (column < whole) store(grad + column, values[i]);
        }
    }
    for (std::int64_t column = whole + threadIdx.x; column < columns; column += blockDim.x) {
        grad[column] = rounded<T>(gradient(logits[column], column));
    }
}

template <class T>
void cross_entropy_backward(const Context& context, const CrossEntropyBackward& operation) {
    const Tensor &grad = operation.grad, &logits = operation.logits;
    GradientArguments<T> arguments{};
    arguments.grad = data<T>(grad);
    arguments.logits = data<const float>(logits);
    arguments.maximum = data<const float>(operation.maximum);
    arguments.sum = data<const float>(operation.sum);
    arguments.targets = data<const std::int32_t>(operation.targets);
    arguments.columns = logits.shape[1];
    arguments.row_stride = logits.strides[0];
    arguments.grad_stride = grad.strides[0];
    arguments.panel_begin = operation.panel_begin;
    arguments.z_loss = operation.z_loss;
    arguments.aligned = is_aligned(logits, kLanes, true) && is_aligned(grad, kLanes, true);
    launch_kernel(cross_entropy_backward_kernel<T>,
                  Grid{static_cast<unsigned>(logits.shape[0]), static_cast<unsigned>(threads_for_row(logits.shape[1]))},
                  context.stream, arguments);
}

}  // namespace

void run(const Context& context, const LogSumExpUpdate& operation) {
    const Tensor& logits = operation.logits;
    LogSumExpArguments arguments{};
    arguments.maximum = data<float>(operation.maximum);
    arguments.sum = data<float>(operation.sum);
    arguments.target_logit = data<float>(operation.target_logit);
    arguments.logits = data<const float>(logits);
    arguments.targets = data<const std::int32_t>(operation.targets);
    arguments.columns = logits.shape[1];
    arguments.row_stride = logits.strides[0];
    arguments.panel_begin = operation.panel_begin;
    arguments.first = operation.first;
    arguments.aligned = is_aligned(logits, kLanes, true);
    launch_kernel(log_sum_exp_kernel,
                  Grid{static_cast<unsigned>(logits.shape[0]), static_cast<unsigned>(threads_for_row(logits.shape[1]))},
                  context.stream, arguments);
}

void run(const Context& context, const LossSum& operation) {
    const std::int64_t tokens = operation.maximum.shape[0];
    const Grid grid{1, static_cast<unsigned>(threads_for(tokens, kLossThreads))};
    launch_kernel(loss_sum_kernel, grid, context.stream, data<double>(operation.loss_sum),
                  data<std::int64_t>(operation.target_count), data<double>(operation.log_z_squares),
                  data<const float>(operation.maximum), data<const float>(operation.sum),
                  data<const float>(operation.target_logit), data<const std::int32_t>(operation.targets), tokens);
}

void run(const Context& context, const CrossEntropyBackward& operation) {
    with_value_type(operation.grad.dtype,
                    [&](auto type) { cross_entropy_backward<ElementOf<decltype(type)>>(context, operation); });
}

}  // namespace mfsdp::device::cuda
