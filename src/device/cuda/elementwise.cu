#include "mfsdp/device/half.h"

#include "device/cuda/kernels.h"
#include "device/cuda/random.h"
#include "device/cuda/vectors.h"

#include <bit>
#include <cstring>

namespace mfsdp::device::cuda {

namespace {

// Fill and copies between equal types move bits: any type of the same size.

template <class Word>
__global__ void __launch_bounds__(kThreads) fill_kernel(Word* out, Word value, DenseExtent<Word> extent) {
    for_vectors(
        extent, [=](auto) { return value; },
        [=](auto at, Word word) {
            constexpr int kLanes = decltype(at)::kLanes;
            if constexpr (kLanes == 1) {
                store_bits(out, at, word);
            } else {
                Word lanes[kLanes];
                for (Word& lane : lanes) lane = word;
                Packed<Word, kLanes> bits;
                memcpy(&bits, lanes, sizeof bits);
                store_bits(out, at, bits);
            }
        });
}

template <class Word>
__global__ void __launch_bounds__(kThreads)
    copy_bits_kernel(View<Word> out, View<const Word> in, RowExtent<Word, Word> extent) {
    for_vectors(
        extent, [=](auto at) { return load_bits(in, at); },
        [=](auto at, const auto& bits) { store_bits(out, at, bits); });
}

template <class To, class From>
__global__ void __launch_bounds__(kThreads)
    convert_kernel(View<To> out, View<const From> in, RowExtent<To, From> extent) {
    for_vectors(
        extent, [=](auto at) { return load(in, at); }, [=](auto at, const auto& values) { store(out, at, values); });
}

/// Vectors of two tensors at one place.
template <int N>
struct Pair {
    Floats<N> a, b;
};

struct Sum {
    [[nodiscard]] __device__ float operator()(float a, float b) const { return a + b; }
};

/// fma(alpha, a, beta b), beta b rounded once.
struct ScaledSum {
    float alpha, beta;
    [[nodiscard]] __device__ float operator()(float a, float b) const { return fmaf(alpha, a, beta * b); }
};

template <class Combine, class Out, class A, class B>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(Out* out, const A* a, const B* b, Combine combine, DenseExtent<Out, A, B> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            constexpr int kLanes = decltype(at)::kLanes;
            return Pair<kLanes>{load(a, at), load(b, at)};
        },
        [=](auto at, auto values) {
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) values.a.lane[i] = combine(values.a.lane[i], values.b.lane[i]);
            store(out, at, values.a);
        });
}

template <class Out, class A>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(Out* out, const A* a, float alpha, DenseExtent<Out, A> extent) {
    for_vectors(
        extent, [=](auto at) { return load(a, at); },
        [=](auto at, auto values) {
            for (float& value : values.lane) value *= alpha;
            store(out, at, values);
        });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_normal_kernel(T* out, std::int64_t count, std::uint64_t key, std::uint64_t first, double deviation) {
    const std::int64_t i = global_index();
    if (i >= count) return;
    out[i] = rounded<T>(static_cast<float>(deviation * normal(key, first + static_cast<std::uint64_t>(i))));
}

template <class Word>
void fill(const Context& context, const Tensor& out, Word bits) {
    const auto extent = extent_of<DenseExtent<Word>>({out});
    launch_kernel(fill_kernel<Word>, extent.grid(), context.stream, data<Word>(out), bits, extent);
}

template <class Word>
void copy_bits(const Context& context, const Copy& operation) {
    const auto extent = extent_of_views<RowExtent<Word, Word>>({operation.out, operation.in});
    launch_kernel(copy_bits_kernel<Word>, extent.grid(), context.stream, view_of<Word>(operation.out),
                  view_of<const Word>(operation.in), extent);
}

/// Calls body with the element types of the three tensors, each float32, bfloat16 or float16.
template <class Body>
void with_three_types(const Tensor& out, const Tensor& a, const Tensor& b, const Body& body) {
    with_float_type(out.dtype, [&](auto out_type) {
        with_float_type(a.dtype, [&](auto a_type) {
            with_float_type(b.dtype, [&](auto b_type) { body(out_type, a_type, b_type); });
        });
    });
}

template <class Combine>
void combine(const Context& context, const Tensor& out, const Tensor& a, const Tensor& b, Combine body) {
    with_three_types(out, a, b, [&](auto out_type, auto a_type, auto b_type) {
        using Out = ElementOf<decltype(out_type)>;
        using A = ElementOf<decltype(a_type)>;
        using B = ElementOf<decltype(b_type)>;
        const auto extent = extent_of<DenseExtent<Out, A, B>>({out, a, b});
        launch_kernel(combine_kernel<Combine, Out, A, B>, extent.grid(), context.stream, data<Out>(out), data<A>(a),
                      data<B>(b), body, extent);
    });
}

}  // namespace

void run(const Context& context, const Fill& operation) {
    const double value = operation.value;
    switch (operation.out.dtype) {
        case DType::float32:
            return fill(context, operation.out, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
        case DType::float64:
            return fill(context, operation.out, std::bit_cast<std::uint64_t>(value));
        case DType::int32:
            return fill(context, operation.out, std::bit_cast<std::uint32_t>(static_cast<std::int32_t>(value)));
        case DType::int64:
            return fill(context, operation.out, std::bit_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
        case DType::bfloat16:
            return fill(context, operation.out, device::rounded<BFloat16>(static_cast<float>(value)).bits);
        case DType::float16:
            return fill(context, operation.out, device::rounded<Float16>(static_cast<float>(value)).bits);
    }
}

void run(const Context& context, const Copy& operation) {
    if (operation.out.dtype == operation.in.dtype) {
        switch (size_of(operation.out.dtype)) {
            case 2:
                return copy_bits<std::uint16_t>(context, operation);
            case 4:
                return copy_bits<std::uint32_t>(context, operation);
            default:
                return copy_bits<std::uint64_t>(context, operation);
        }
    }
    with_float_type(operation.out.dtype, [&](auto to) {
        with_float_type(operation.in.dtype, [&](auto from) {
            using To = ElementOf<decltype(to)>;
            using From = ElementOf<decltype(from)>;
            const auto extent = extent_of_views<RowExtent<To, From>>({operation.out, operation.in});
            launch_kernel(convert_kernel<To, From>, extent.grid(), context.stream, view_of<To>(operation.out),
                          view_of<const From>(operation.in), extent);
        });
    });
}

void run(const Context& context, const Add& operation) {
    combine(context, operation.out, operation.a, operation.b, Sum{});
}

void run(const Context& context, const ScaledAdd& operation) {
    if (operation.b.defined()) {
        return combine(context, operation.out, operation.a, operation.b, ScaledSum{operation.alpha, operation.beta});
    }
    with_float_type(operation.out.dtype, [&](auto out_type) {
        with_float_type(operation.a.dtype, [&](auto a_type) {
            using Out = ElementOf<decltype(out_type)>;
            using A = ElementOf<decltype(a_type)>;
            const auto extent = extent_of<DenseExtent<Out, A>>({operation.out, operation.a});
            launch_kernel(scale_kernel<Out, A>, extent.grid(), context.stream, data<Out>(operation.out),
                          data<A>(operation.a), operation.alpha, extent);
        });
    });
}

void run(const Context& context, const FillNormal& operation) {
    with_value_type(operation.out.dtype, [&](auto type) {
        using T = ElementOf<decltype(type)>;
        const std::int64_t count = operation.out.count();
        const Grid grid{static_cast<unsigned>(pieces_of(count, kThreads)), kThreads};
        launch_kernel(fill_normal_kernel<T>, grid, context.stream, data<T>(operation.out), count, mix(operation.key),
                      static_cast<std::uint64_t>(operation.first_index), operation.standard_deviation);
    });
}

}  // namespace mfsdp::device::cuda
