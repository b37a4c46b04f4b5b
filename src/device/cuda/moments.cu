#include "mfsdp/device/ops/moments.h"

#include "device/cuda/kernels.h"
#include "device/cuda/scaled_gradient.h"
#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

namespace {

__global__ void __launch_bounds__(kThreads)
    scale_gradient_kernel(float* out, const float* gradient, GradientScale scale, DenseExtent<float, float> extent) {
    for_vectors(
        extent, [=](auto at) { return load(gradient, at); },
        [=](auto at, auto g) {
            for (float& value : g.lane) value = scaled(value, scale);
            store(out, at, g);
        });
}

template <int N>
struct GraftVectors {
    Floats<N> momentum, square, gradient;
};

/// The numbers of GraftMoments.
struct GraftNumbers {
    GradientScale scale;
    float beta1, one_minus_beta1, beta2, square_factor;
};

template <bool kHasSquare>
__global__ void __launch_bounds__(kThreads)
    graft_moments_kernel(float* out, float* momentum, float* square, const float* gradient, GraftNumbers numbers,
                         DenseExtent<float, float, float> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            GraftVectors<decltype(at)::kLanes> v;
            v.momentum = load(momentum, at);
            v.gradient = load(gradient, at);
            if constexpr (kHasSquare) v.square = load(square, at);
            return v;
        },
        [=](auto at, auto v) {
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) {
                const float g = scaled(v.gradient.lane[i], numbers.scale);
                v.gradient.lane[i] = g;
                v.momentum.lane[i] = fmaf(numbers.one_minus_beta1, g, numbers.beta1 * v.momentum.lane[i]);
                if constexpr (kHasSquare) {
                    v.square.lane[i] = fmaf(numbers.square_factor, g * g, numbers.beta2 * v.square.lane[i]);
                }
            }
            store(out, at, v.gradient);
            store(momentum, at, v.momentum);
            if constexpr (kHasSquare) store(square, at, v.square);
        });
}

template <int N>
struct Pair {
    Floats<N> a, b;
};

__global__ void __launch_bounds__(kThreads)
    average_kernel(float* average, const float* momentum, float correction, DenseExtent<float, float> extent) {
    for_vectors(
        extent, [=](auto at) { return load(momentum, at); },
        [=](auto at, auto m) {
            for (float& value : m.lane) value /= correction;
            store(average, at, m);
        });
}

__global__ void __launch_bounds__(kThreads)
    graft_direction_kernel(float* average, float* graft, const float* momentum, const float* square, float correction,
                           float root_correction, float epsilon, DenseExtent<float, float, float> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            return Pair<decltype(at)::kLanes>{load(momentum, at), load(square, at)};
        },
        [=](auto at, auto v) {
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) {
                v.a.lane[i] /= correction;
                v.b.lane[i] = v.a.lane[i] / (sqrtf(v.b.lane[i]) / root_correction + epsilon);
            }
            store(average, at, v.a);
            store(graft, at, v.b);
        });
}

/// The numbers of EigenbasisMoments.
struct EigenbasisNumbers {
    float beta1, one_minus_beta1, beta2, one_minus_beta2, correction, root_correction, epsilon;
};

__global__ void __launch_bounds__(kThreads)
    eigenbasis_moments_kernel(float* out, float* exp_avg, float* exp_avg_sq, const float* gradient,
                              EigenbasisNumbers numbers, DenseExtent<float, float, float> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            return GraftVectors<decltype(at)::kLanes>{load(exp_avg, at), load(exp_avg_sq, at), load(gradient, at)};
        },
        [=](auto at, auto v) {
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) {
                const float g = v.gradient.lane[i];
                const float m = fmaf(numbers.one_minus_beta1, g, numbers.beta1 * v.momentum.lane[i]);
                const float s = fmaf(numbers.one_minus_beta2, g * g, numbers.beta2 * v.square.lane[i]);
                v.momentum.lane[i] = m;
                v.square.lane[i] = s;
                v.gradient.lane[i] = m / numbers.correction / (sqrtf(s) / numbers.root_correction + numbers.epsilon);
            }
            store(exp_avg, at, v.momentum);
            store(exp_avg_sq, at, v.square);
            store(out, at, v.gradient);
        });
}

}  // namespace

void run(const Context& context, const ScaleGradient& operation) {
    const auto extent = extent_of<DenseExtent<float, float>>({operation.out, operation.gradient});
    launch_kernel(scale_gradient_kernel, extent.grid(), context.stream, data<float>(operation.out),
                  data<const float>(operation.gradient), operation.scale, extent);
}

void run(const Context& context, const GraftMoments& operation) {
    const bool has_square = operation.square.defined();
    const auto extent = extent_of<DenseExtent<float, float, float>>(
        {operation.out, operation.momentum, operation.gradient, has_square ? operation.square : operation.out});
    const GraftNumbers numbers{operation.scale, operation.beta1, operation.one_minus_beta1, operation.beta2,
                               operation.square_factor};
    launch_kernel(has_square ? graft_moments_kernel<true> : graft_moments_kernel<false>, extent.grid(), context.stream,
                  data<float>(operation.out), data<float>(operation.momentum), data<float>(operation.square),
                  data<const float>(operation.gradient), numbers, extent);
}

void run(const Context& context, const GraftDirection& operation) {
    if (!operation.graft.defined()) {
        const auto extent = extent_of<DenseExtent<float, float>>({operation.average, operation.momentum});
        launch_kernel(average_kernel, extent.grid(), context.stream, data<float>(operation.average),
                      data<const float>(operation.momentum), operation.correction, extent);
        return;
    }
    const auto extent = extent_of<DenseExtent<float, float, float>>(
        {operation.average, operation.graft, operation.momentum, operation.square});
    launch_kernel(graft_direction_kernel, extent.grid(), context.stream, data<float>(operation.average),
                  data<float>(operation.graft), data<const float>(operation.momentum),
                  data<const float>(operation.square), operation.correction, operation.root_correction,
                  operation.epsilon, extent);
}

void run(const Context& context, const EigenbasisMoments& operation) {
    const auto extent = extent_of<DenseExtent<float, float, float>>(
        {operation.out, operation.exp_avg, operation.exp_avg_sq, operation.gradient});
    const EigenbasisNumbers numbers{operation.beta1,           operation.one_minus_beta1, operation.beta2,
                                    operation.one_minus_beta2, operation.correction,      operation.root_correction,
                                    operation.epsilon};
    launch_kernel(eigenbasis_moments_kernel, extent.grid(), context.stream, data<float>(operation.out),
                  data<float>(operation.exp_avg), data<float>(operation.exp_avg_sq),
                  data<const float>(operation.gradient), numbers, extent);
}

}  // namespace mfsdp::device::cuda
