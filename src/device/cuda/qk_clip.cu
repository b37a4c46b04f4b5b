#include "mfsdp/device/ops/qk_clip.h"

#include "device/cuda/kernels.h"
#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

namespace {

/// factors[g]: of the rows of group g, 1 where its logits are small enough.
__global__ void __launch_bounds__(kThreads)
    clip_factors_kernel(float* factors, const float* logits, std::int64_t groups, std::int64_t queries,
                        double threshold, double exponent) {
    const std::int64_t group = global_index();
    if (group >= groups) return;
    float largest = logits[group * queries];
    for (std::int64_t i = 1; i < queries; ++i) {
        const float logit = logits[group * queries + i];
        largest = largest < logit ? logit : largest;
    }
    const auto wide = static_cast<double>(largest);
    factors[group] = wide > threshold ? static_cast<float>(pow(threshold / wide, exponent)) : 1.0F;
}

template <int N>
struct ClippedVector {
    Floats<N> weight;
    float factor;
};

/// Rows of a factor of 1 are neither read nor written.
__global__ void __launch_bounds__(kThreads)
    qk_clip_kernel(View<float> weight, const float* factors, std::int64_t row_begin, std::int64_t rows_in_group,
                   RowExtent<float, float> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            ClippedVector<decltype(at)::kLanes> v{};
            v.factor = factors[quotient(at.row + row_begin, rows_in_group)];
            if (v.factor != 1.0F) v.weight = load(weight, at);
            return v;
        },
        [=](auto at, auto v) {
            if (v.factor == 1.0F) return;
            for (float& value : v.weight.lane) value *= v.factor;
            store(weight, at, v.weight);
        });
}

}  // namespace

void run(const Context& context, const QkClip& operation) {
    const Tensor& weight = operation.weight;
    if (weight.count() == 0) return;
    const std::int64_t groups = operation.key_heads;
    auto* const factors =
        reinterpret_cast<float*>(context.scratch.reserve(groups * static_cast<std::int64_t>(sizeof(float))));
    launch_kernel(clip_factors_kernel, Grid{static_cast<unsigned>(pieces_of(groups, kThreads)), kThreads},
                  context.stream, factors, data<const float>(operation.logits), groups,
                  operation.logits.count() / groups, operation.threshold, operation.exponent);
    const std::int64_t columns = weight.rank == 2 ? weight.shape[1] : 1;  // a bias is a row for each element
    View<float> view{.data = data<float>(weight), .outer_stride = weight.strides[0]};
    const auto extent = extent_of_rows<RowExtent<float, float>>(weight.shape[0], columns, {weight});
    launch_kernel(qk_clip_kernel, extent.grid(), context.stream, view, factors, operation.row_begin,
                  operation.rows_in_group, extent);
}

}  // namespace mfsdp::device::cuda
