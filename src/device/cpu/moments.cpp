#include "mfsdp/device/ops/moments.h"

#include "device/cpu/kernels.h"
#include "device/cpu/pieces.h"

#include <cmath>

namespace mfsdp::device::cpu {

namespace {

float scaled(float gradient, const GradientScale& scale) { return gradient * scale.inverse_targets * scale.clip; }

}  // namespace

void run(const Context& context, const ScaleGradient& operation) {
    float* const out = context.data<float>(operation.out);
    const float* const gradient = context.data<const float>(operation.gradient);
    const GradientScale scale = operation.scale;
    for_pieces(context.threads, operation.out.count(), kPieceElements, [=](std::int64_t begin, std::int64_t size) {
        for (std::int64_t i = begin; i < begin + size; ++i) out[i] = scaled(gradient[i], scale);
    });
}

void run(const Context& context, const GraftMoments& operation) {
    float* const out = context.data<float>(operation.out);
    float* const momentum = context.data<float>(operation.momentum);
    float* const square = context.data<float>(operation.square);
    const float* const gradient = context.data<const float>(operation.gradient);
    for_pieces(context.threads, operation.out.count(), kPieceElements, [&](std::int64_t begin, std::int64_t size) {
        float* const __restrict g = out + begin;
        float* const __restrict m = momentum + begin;
        const float* const __restrict in = gradient + begin;
        for (std::int64_t i = 0; i < size; ++i) {
            g[i] = scaled(in[i], operation.scale);
            m[i] = std::fma(operation.one_minus_beta1, g[i], operation.beta1 * m[i]);
        }
        if (square == nullptr) return;
        float* const __restrict v = square + begin;
        for (std::int64_t i = 0; i < size; ++i) {
            v[i] = std::fma(operation.square_factor, g[i] * g[i], operation.beta2 * v[i]);
        }
    });
}

void run(const Context& context, const GraftDirection& operation) {
    float* const average = context.data<float>(operation.average);
    float* const graft = context.data<float>(operation.graft);
    const float* const momentum = context.data<const float>(operation.momentum);
    const float* const square = context.data<const float>(operation.square);
    const float correction = operation.correction, root_correction = operation.root_correction;
    const float epsilon = operation.epsilon;
    for_pieces(context.threads, operation.average.count(), kPieceElements, [=](std::int64_t begin, std::int64_t size) {
        for (std::int64_t i = begin; i < begin + size; ++i) average[i] = momentum[i] / correction;
        if (graft == nullptr) return;
        for (std::int64_t i = begin; i < begin + size; ++i) {
            graft[i] = average[i] / (std::sqrt(square[i]) / root_correction + epsilon);
        }
    });
}

void run(const Context& context, const EigenbasisMoments& operation) {
    float* const out = context.data<float>(operation.out);
    float* const exp_avg = context.data<float>(operation.exp_avg);
    float* const exp_avg_sq = context.data<float>(operation.exp_avg_sq);
    const float* const gradient = context.data<const float>(operation.gradient);
    for_pieces(context.threads, operation.out.count(), kPieceElements, [&](std::int64_t begin, std::int64_t size) {
        float* const __restrict m = exp_avg + begin;
        float* const __restrict v = exp_avg_sq + begin;
        const float* const in = gradient + begin;  // may be out
        float* const u = out + begin;
        for (std::int64_t i = 0; i < size; ++i) {
            const float g = in[i];
            m[i] = std::fma(operation.one_minus_beta1, g, operation.beta1 * m[i]);
            v[i] = std::fma(operation.one_minus_beta2, g * g, operation.beta2 * v[i]);
            const float denominator = std::sqrt(v[i]) / operation.root_correction + operation.epsilon;
            u[i] = m[i] / operation.correction / denominator;
        }
    });
}

}  // namespace mfsdp::device::cpu
