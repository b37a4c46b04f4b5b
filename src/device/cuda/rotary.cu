#include "mfsdp/device/ops/attention.h"

#include "device/cuda/kernels.h"
#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

namespace {

template <int N>
struct RotaryVectors {
    Floats<N> first, second, cosine, sine;
};

/// A place is a vector of a head's first half; its partner lies half a head further.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rotary_kernel(View<T> x, const float* cosine, const float* sine, std::int64_t length, std::int64_t heads,
                  float sign, Extent<kLanesOf<T>, 1, true> extent) {
    const std::int64_t half = extent.columns;
    for_vectors(
        extent,
        [=](auto at) {
            constexpr int kLanes = decltype(at)::kLanes;
            const T* const first = address(x, at);
            const std::int64_t token = quotient(at.row, heads);
            const std::int64_t angle = (token - quotient(token, length) * length) * half + at.column;
            return RotaryVectors<kLanes>{load<kLanes>(first), load<kLanes>(first + half), load<kLanes>(cosine + angle),
                                         load<kLanes>(sine + angle)};
        },
        [=](auto at, const auto& v) {
            Floats<decltype(at)::kLanes> first, second;
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) {
                const float c = v.cosine.lane[i], s = sign * v.sine.lane[i];
                first.lane[i] = fmaf(v.first.lane[i], c, -(v.second.lane[i] * s));
                second.lane[i] = fmaf(v.second.lane[i], c, v.first.lane[i] * s);
            }
            T* const target = address(x, at);
            store(target, first);
            store(target + half, second);
        });
}

template <class T>
void rotary(const Context& context, const Rotary& operation) {
    using E = Extent<kLanesOf<T>, 1, true>;
    const Tensor& x = operation.x;
    const std::int64_t half = x.shape[3] / 2;
    if (x.count() == 0) return;
    const E extent = extent_of_rows<E>(x.rows(), half, {x, operation.cosine, operation.sine});
    launch_kernel(rotary_kernel<T>, extent.grid(), context.stream, view_of<T>(x), data<const float>(operation.cosine),
                  data<const float>(operation.sine), x.shape[1], x.shape[2], operation.inverse ? -1.0F : 1.0F, extent);
}

}  // namespace

void run(const Context& context, const Rotary& operation) {
    with_value_type(operation.x.dtype, [&](auto type) { rotary<ElementOf<decltype(type)>>(context, operation); });
}

}  // namespace mfsdp::device::cuda
