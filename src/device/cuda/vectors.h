#pragma once

// Elementwise work on vectors of 16 bytes.
//
// A kernel names, for a place in its tensors, what it loads and what it stores:
//
//     template <class T>
//     __global__ void __launch_bounds__(kThreads) twice(T* out, const T* in, DenseExtent<T, T> extent) {
//         for_vectors(
//             extent, [=](auto at) { return load(in, at); },
//             [=](auto at, auto x) {
//                 for (float& value : x.lane) value *= 2.0F;
//                 store(out, at, x);
//             });
//     }
//     const auto extent = extent_of<DenseExtent<T, T>>({operation.out, operation.in});
//     launch_kernel(twice<T>, extent.grid(), context.stream, data<T>(operation.out), data<T>(operation.in), extent);
//
// Every thread loads several vectors before it stores the first, so that memory always has enough to do, and where an
// address or a row's end does not allow vectors the same code runs element by element. What an element becomes does not
// depend on which, so results have the same bits wherever tensors lie.

#include "mfsdp/device/tensor.h"

#include "device/cuda/element.h"
#include "device/cuda/kernels.h"
#include "device/cuda/launch.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#ifdef MFSDP_CUDA_EMULATED
#define MFSDP_KEEP_LOOP
#define MFSDP_UNROLL_BY_4
#else
/// For loops that are seldom run: unrolled they would take registers from the others.
#define MFSDP_KEEP_LOOP _Pragma("unroll 1")
/// For long loops whose loads do not wait for each other.
#define MFSDP_UNROLL_BY_4 _Pragma("unroll 4")
#endif

namespace mfsdp::device::cuda {

/// Threads of a block of elementwise work.
inline constexpr int kThreads = 256;

/// dividend / divisor of numbers >= 0. 64 bits are needed for huge tensors only and take ten times as long.
[[nodiscard]] __device__ inline std::int64_t quotient(std::int64_t dividend, std::int64_t divisor) {
    if (((dividend | divisor) >> 32) == 0) {
        return static_cast<std::uint32_t>(dividend) / static_cast<std::uint32_t>(divisor);
    }
    return dividend / divisor;
}

/// A tensor as rows of contiguous elements, the rows counted through up to three outer dimensions.
template <class T>
struct View {
    T* data = nullptr;
    std::int64_t outer_stride = 0;       ///< of rows counted by `middle` and `inner`
    std::int64_t middle = 1, inner = 1;  ///< sizes of the two inner ones of the outer dimensions
    std::int64_t middle_stride = 0, inner_stride = 0;

    [[nodiscard]] __device__ T* row(std::int64_t row) const {
        if (inner == 1) return data + row * outer_stride;
        const std::int64_t outer = quotient(row, inner);
        T* const begin = data + (row - outer * inner) * inner_stride;
        if (middle == 1) return begin + outer * outer_stride;
        const std::int64_t first = quotient(outer, middle);
        return begin + first * outer_stride + (outer - first * middle) * middle_stride;
    }
};

/// The view of a tensor; dimensions whose rows lie evenly are counted as one, which saves divisions.
template <class T>
[[nodiscard]] View<T> view_of(const Tensor& tensor) {
    struct Dimension {
        std::int64_t size, stride;
    };
    std::array<Dimension, Tensor::kMaxRank> outer{};  // outermost first
    std::size_t count = 0;
    for (int axis = 0; axis + 1 < tensor.rank; ++axis) {
        const auto index = static_cast<std::size_t>(axis);
        const Dimension next{tensor.shape[index], tensor.strides[index]};
        if (next.size == 1) continue;
        if (count > 0 && outer[count - 1].stride == next.size * next.stride) {
            outer[count - 1] = {outer[count - 1].size * next.size, next.stride};
        } else {
            outer[count++] = next;
        }
    }
    View<T> view{.data = data<T>(tensor)};
    if (count > 0) view.outer_stride = outer[0].stride;
    if (count > 1) {
        view.inner = outer[count - 1].size;
        view.inner_stride = outer[count - 1].stride;
    }
    if (count > 2) {
        view.middle = outer[1].size;
        view.middle_stride = outer[1].stride;
    }
    return view;
}

/// Dense memory as rows of `columns` elements.
template <class T>
[[nodiscard]] View<T> rows_of(const Tensor& tensor, std::int64_t columns) {
    return {.data = data<T>(tensor), .outer_stride = columns};
}

/// N elements of a row, from `column` on.
template <int N>
struct Place {
    static constexpr int kLanes = N;
    std::int64_t row, column;
};

template <class T, int N>
[[nodiscard]] __device__ inline T* address(const View<T>& view, Place<N> at) {
    return view.row(at.row) + at.column;
}
/// Of dense memory.
template <class T, int N>
[[nodiscard]] __device__ inline T* address(T* data, Place<N> at) {
    return data + at.column;
}

/// `tensor` is a View or, for dense memory, a pointer.
template <class Tensor, int N>
[[nodiscard]] __device__ inline Floats<N> load(const Tensor& tensor, Place<N> at) {
    return load<N>(address(tensor, at));
}
template <class Tensor, int N>
__device__ inline void store(const Tensor& tensor, Place<N> at, const Floats<N>& values) {
    store(address(tensor, at), values);
}

/// Elements as bits, for what moves them and does not look at values: one word or a Packed.
template <class Tensor, int N>
[[nodiscard]] __device__ inline auto load_bits(const Tensor& tensor, Place<N> at) {
    if constexpr (N == 1) {
        return *address(tensor, at);
    } else {
        return load_packed<N>(address(tensor, at));
    }
}
template <class Tensor, int N, class Bits>
__device__ inline void store_bits(const Tensor& tensor, Place<N> at, const Bits& bits) {
    if constexpr (N == 1) {
        *address(tensor, at) = bits;
    } else {
        store_packed(address(tensor, at), bits);
    }
}

/// What a kernel goes over, in vectors of kLanes elements, kInFlight of which a thread loads at once: rows, or where
/// kInRows is false all elements of dense tensors as one row.
template <int kLanesInVector, int kVectorsInFlight, bool kHasRows>
struct Extent {
    static constexpr int kLanes = kLanesInVector;
    static constexpr int kInFlight = kVectorsInFlight;
    static constexpr bool kInRows = kHasRows;

    std::int64_t columns = 0;
    std::int64_t vectors_in_row = 0;
    std::int64_t vectors = 0;  ///< of all rows; the last one of a row may be shorter
    std::int64_t whole = 0;    ///< so many of them may be accessed as vectors, those that follow element by element

    [[nodiscard]] Grid grid() const {
        return {static_cast<unsigned>(pieces_of(vectors, kThreads * kInFlight)), kThreads};
    }
};

/// A thread for each of `count` elements.
[[nodiscard]] inline Grid grid_of(std::int64_t count) {
    return {static_cast<unsigned>(pieces_of(count, kThreads)), kThreads};
}

/// Elements of one access: 16 bytes of the widest type.
template <class... T>
inline constexpr int kLanesOf = 16 / static_cast<int>(std::max({sizeof(T)...}));
/// Vectors that a thread loads at once: the more tensors there are, the fewer of each keep memory busy.
template <class... T>
inline constexpr int kInFlightOf = sizeof...(T) <= 2 ? 4 : 2;
/// The extent of a kernel that reads or writes dense tensors of these types, or rows of such.
template <class... T>
using DenseExtent = Extent<kLanesOf<T...>, kInFlightOf<T...>, false>;
template <class... T>
using RowExtent = Extent<kLanesOf<T...>, kInFlightOf<T...>, true>;

/// Whether vectors of `lanes` elements may be read and written at the rows of a tensor.
[[nodiscard]] inline bool is_aligned(const Tensor& tensor, int lanes, bool in_rows) {
    const std::int64_t width = size_of(tensor.dtype);
    const std::int64_t alignment = std::min<std::int64_t>(16, lanes * width);
    const auto aligned = [&](std::int64_t bytes) { return bytes % alignment == 0; };
    if (!aligned(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.data)))) return false;
    for (int axis = 0; in_rows && axis + 1 < tensor.rank; ++axis) {
        const auto index = static_cast<std::size_t>(axis);
        if (tensor.shape[index] > 1 && !aligned(tensor.strides[index] * width)) return false;
    }
    return true;
}

/// The extent over dense tensors of the element count of the first.
template <class E>
[[nodiscard]] E extent_of(std::initializer_list<Tensor> tensors) {
    static_assert(!E::kInRows);
    E extent;
    extent.columns = tensors.begin()->count();
    extent.vectors = extent.vectors_in_row = pieces_of(extent.columns, E::kLanes);
    const bool aligned =
        std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return is_aligned(t, E::kLanes, false); });
    extent.whole = aligned ? extent.columns / E::kLanes : 0;
    return extent;
}

/// The extent over rows of tensors; `tensors` are those whose places matter.
template <class E>
[[nodiscard]] E extent_of_rows(std::int64_t rows, std::int64_t columns, std::initializer_list<Tensor> tensors) {
    static_assert(E::kInRows);
    E extent;
    extent.columns = columns;
    extent.vectors_in_row = pieces_of(columns, E::kLanes);
    extent.vectors = rows * extent.vectors_in_row;
    const bool aligned =
        std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return is_aligned(t, E::kLanes, true); });
    extent.whole = aligned && columns % E::kLanes == 0 ? extent.vectors : 0;
    return extent;
}

/// The extent over the rows of tensors of one shape; where all are dense they are a single row.
template <class E>
[[nodiscard]] E extent_of_views(std::initializer_list<Tensor> tensors) {
    const Tensor& model = *tensors.begin();
    const bool dense = std::all_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.is_dense(); });
    if (!dense) return extent_of_rows<E>(model.rows(), model.columns(), tensors);
    const auto row = extent_of<Extent<E::kLanes, E::kInFlight, false>>(tensors);
    return {row.columns, row.vectors_in_row, row.vectors, row.whole};
}

template <class E>
[[nodiscard]] __device__ inline Place<E::kLanes> place_of(const E& extent, std::int64_t vector) {
    if constexpr (E::kInRows) {
        if (extent.vectors_in_row != extent.vectors) {
            const std::int64_t row = quotient(vector, extent.vectors_in_row);
            return {row, (vector - row * extent.vectors_in_row) * E::kLanes};
        }
    }
    return {0, vector * E::kLanes};
}

/// Calls store(at, load(at)) so that `at`, over all blocks of the extent's grid, covers the extent once, with
/// Place<kLanes> or, where vectors cannot be, Place<1>. A thread loads all of its vectors before it stores one: they
/// must not overlap with those of others.
template <class E, class Load, class Store>
__device__ inline void for_vectors_of_block(const E& extent, unsigned block, const Load& load, const Store& store) {
    constexpr int kInFlight = E::kInFlight;
    const std::int64_t first = static_cast<std::int64_t>(block) * (kThreads * kInFlight) + threadIdx.x;
    decltype(load(Place<E::kLanes>{})) loaded[kInFlight]{};
    MFSDP_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
        const std::int64_t vector = first + i * kThreads;
        if (vector < extent.whole) loaded[i] = load(place_of(extent, vector));
    }
    MFSDP_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
        const std::int64_t vector = first + i * kThreads;
        if (vector < extent.whole) store(place_of(extent, vector), loaded[i]);
    }
    if (first + (kInFlight - 1) * kThreads < extent.whole) return;
    MFSDP_KEEP_LOOP
    for (int i = 0; i < kInFlight; ++i) {
        const std::int64_t vector = first + i * kThreads;
        if (vector < extent.whole || vector >= extent.vectors) continue;
        const Place<E::kLanes> place = place_of(extent, vector);
        MFSDP_KEEP_LOOP
        for (int lane = 0; lane < E::kLanes && place.column + lane < extent.columns; ++lane) {
            const Place<1> at{place.row, place.column + lane};
            store(at, load(at));
        }
    }
}

/// The same where the extent has the kernel's grid to itself.
template <class E, class Load, class Store>
__device__ inline void for_vectors(const E& extent, const Load& load, const Store& store) {
    for_vectors_of_block(extent, blockIdx.x, load, store);
}

}  // namespace mfsdp::device::cuda
