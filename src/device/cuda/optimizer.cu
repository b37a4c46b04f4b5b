#include "mfsdp/device/ops/optimizer.h"

#include "device/cuda/exact_sum.h"
#include "device/cuda/kernels.h"
#include "device/cuda/reduce.h"
#include "device/cuda/scaled_gradient.h"
#include "device/cuda/square_sums.h"
#include "device/cuda/vectors.h"

#include <cmath>
#include <span>

namespace mfsdp::device::cuda {

namespace {

template <int N>
struct AdamWVectors {
    Floats<N> weight, exp_avg, exp_avg_sq, gradient;
};

/// The numbers of AdamWStep.
struct AdamWNumbers {
    GradientScale scale;
    float one_minus_beta1, beta2, one_minus_beta2, root_correction, epsilon;
};

using AdamWExtent = DenseExtent<float, float, float, float>;

/// The parameters of an AdamWStep, whose blocks follow each other in the grid.
struct AdamWTasks {
    struct Task {
        float *weight, *exp_avg, *exp_avg_sq;
        const float* gradient;
        AdamWExtent extent;
        unsigned first_block;
        float decay, step_size;
    };
    Task task[kMaxAdamWTasks];
    int count;
};

__global__ void __launch_bounds__(kThreads) adamw_kernel(AdamWNumbers numbers, AdamWTasks tasks) {
    int index = 0;
    while (index + 1 < tasks.count && blockIdx.x >= tasks.task[index + 1].first_block) ++index;
    float* const weight = tasks.task[index].weight;
    float* const exp_avg = tasks.task[index].exp_avg;
    float* const exp_avg_sq = tasks.task[index].exp_avg_sq;
    const float* const gradient = tasks.task[index].gradient;
    const float decay = tasks.task[index].decay, step_size = tasks.task[index].step_size;
    for_vectors_of_block(
        tasks.task[index].extent, blockIdx.x - tasks.task[index].first_block,
        [=](auto at) {
            return AdamWVectors<decltype(at)::kLanes>{load(weight, at), load(exp_avg, at), load(exp_avg_sq, at),
                                                      load(gradient, at)};
        },
        [=](auto at, auto v) {
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) {
                const float g = scaled(v.gradient.lane[i], numbers.scale);
                const float m = fmaf(numbers.one_minus_beta1, g - v.exp_avg.lane[i], v.exp_avg.lane[i]);
                const float square = numbers.one_minus_beta2 * g * g;
                const float moment = fmaf(numbers.beta2, v.exp_avg_sq.lane[i], square);
                const float denominator = sqrtf(moment) / numbers.root_correction + numbers.epsilon;
                v.weight.lane[i] = decay * v.weight.lane[i] - step_size * m / denominator;
                v.exp_avg.lane[i] = m;
                v.exp_avg_sq.lane[i] = moment;
            }
            store(weight, at, v.weight);
            store(exp_avg, at, v.exp_avg);
            store(exp_avg_sq, at, v.exp_avg_sq);
        });
}

constexpr int kSumThreads = 1024;

__global__ void __launch_bounds__(kSumThreads) exact_sum_kernel(std::int64_t* words, SquareSums squares) {
    MFSDP_SHARED(unsigned long long, added[ExactSum::kWords + 1]);  // the last one counts rows that are not finite
    static_assert(ExactSum::kWords < kWarpSize);
    if (threadIdx.x <= ExactSum::kWords) added[threadIdx.x] = 0;
    __syncthreads();
    for (std::int64_t row = threadIdx.x; row < squares.rows; row += blockDim.x) {
        const double sum = squares.row(row);
        if (sum < INFINITY) {  // false for NaN
            add_exactly(added, sum);
        } else {
            atomicAdd(added + ExactSum::kWords, 1ULL);
        }
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    add_and_normalise(words, added);
    words[ExactSum::kWords] += static_cast<std::int64_t>(added[ExactSum::kWords]);
}

template <int N>
struct UpdateVectors {
    Floats<N> weight, direction;
};

template <class D>
__global__ void __launch_bounds__(kThreads)
    weight_update_kernel(View<float> weight, View<const D> direction, float decay, float step,
                         RowExtent<float, float, D> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            return UpdateVectors<decltype(at)::kLanes>{load(weight, at), load(direction, at)};
        },
        [=](auto at, auto v) {
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) {
                v.weight.lane[i] = fmaf(-step, v.direction.lane[i], decay * v.weight.lane[i]);
            }
            store(weight, at, v.weight);
        });
}

}  // namespace

void run(const Context& context, const AdamWStep& step) {
    AdamWTasks tasks{};
    Grid grid{0, kThreads};
    for (const AdamWStep::Task& task : std::span(step.tasks).first(static_cast<std::size_t>(step.count))) {
        const auto extent = extent_of<AdamWExtent>({task.weight, task.exp_avg, task.exp_avg_sq, task.gradient});
        tasks.task[tasks.count++] = {data<float>(task.weight),
                                     data<float>(task.exp_avg),
                                     data<float>(task.exp_avg_sq),
                                     data<const float>(task.gradient),
                                     extent,
                                     grid.blocks.x,
                                     task.decay,
                                     task.step_size};
        grid.blocks.x += extent.grid().blocks.x;
    }
    const AdamWNumbers numbers{step.scale,           step.one_minus_beta1, step.beta2,
                               step.one_minus_beta2, step.root_correction, step.epsilon};
    launch_kernel(adamw_kernel, grid, context.stream, numbers, tasks);
}

void run(const Context& context, const WeightUpdate& operation) {
    with_float_type(operation.direction.dtype, [&](auto type) {
        using D = ElementOf<decltype(type)>;
        const auto extent = extent_of_views<RowExtent<float, float, D>>({operation.weight, operation.direction});
        launch_kernel(weight_update_kernel<D>, extent.grid(), context.stream, view_of<float>(operation.weight),
                      view_of<const D>(operation.direction), operation.decay, operation.step, extent);
    });
}

void run(const Context& context, const SquareSum& operation) {
    const SquareSums squares = sum_squares<float>(context, operation.in);
    launch_kernel(exact_sum_kernel, Grid{1, static_cast<unsigned>(threads_for(squares.rows, kSumThreads))},
                  context.stream, data<std::int64_t>(operation.words), squares);
}

}  // namespace mfsdp::device::cuda
