#pragma once

#include "mfsdp/base/error.h"
#include "mfsdp/device/dtype.h"

#include "device/cuda/launch.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace mfsdp::device::cuda {

/// An element type as an argument: what the functions below hand to a generic lambda.
template <class T>
struct Type {
    using Element = T;
};
template <class Tag>
using ElementOf = typename Tag::Element;

/// Calls body(Type<T>{}) for the element type of a value tensor or parameter gradient: float32 or bfloat16.
template <class Body>
void with_value_type(DType dtype, const Body& body) {
    if (dtype == DType::bfloat16) return body(Type<__nv_bfloat16>{});
    MFSDP_ASSERT(dtype == DType::float32, "check() lets float32 and bfloat16 pass");
    body(Type<float>{});
}

/// Calls body(Type<T>{}) for float32, bfloat16 or float16.
template <class Body>
void with_float_type(DType dtype, const Body& body) {
    if (dtype == DType::float16) return body(Type<__half>{});
    with_value_type(dtype, body);
}

/// Elements are read by widening, which is exact, and written by rounding to nearest, ties to even.
[[nodiscard]] __device__ inline float widened(float value) { return value; }
[[nodiscard]] __device__ inline float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
[[nodiscard]] __device__ inline float widened(__half value) { return __half2float(value); }

template <class T>
[[nodiscard]] __device__ inline T rounded(float value) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return __float2bfloat16_rn(value);
    } else if constexpr (std::is_same_v<T, __half>) {
        return __float2half_rn(value);
    } else {
        return value;
    }
}

/// N elements as float32.
template <int N>
struct Floats {
    float lane[N];
};

/// N elements of T as they lie in memory, in words of 32 bits; N is even for elements of 16 bits. Rows that are used
/// more than once are kept so: registers are what limits how many loads are on their way.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Packed {
    static constexpr int kWords = static_cast<int>(N * sizeof(T) / sizeof(std::uint32_t));
    static_assert(kWords * sizeof(std::uint32_t) == N * sizeof(T));
    std::uint32_t word[kWords];
};

#ifdef MFSDP_CUDA_EMULATED
/// A GPU refuses other addresses, the host does not.
template <class Vector>
inline void require_aligned(const void* address) {
    if (reinterpret_cast<std::uintptr_t>(address) % alignof(Vector) == 0) return;
    emulated_cuda::fail("a vector of %zu bytes at %p, which is not a multiple of %zu", sizeof(Vector), address,
                        alignof(Vector));
}
#endif

/// One access of 16 bytes (or fewer, if N elements have fewer); the address is a multiple of alignof(Packed<T, N>).
template <int N, class T>
[[nodiscard]] __device__ inline Packed<std::remove_const_t<T>, N> load_packed(const T* source) {
    using Result = Packed<std::remove_const_t<T>, N>;
#ifdef MFSDP_CUDA_EMULATED
    require_aligned<Result>(source);
    Result result;
    std::memcpy(&result, source, sizeof result);
    return result;
#else
    return *reinterpret_cast<const Result*>(source);
#endif
}

template <class T, int N>
__device__ inline void store_packed(T* target, const Packed<T, N>& value) {
#ifdef MFSDP_CUDA_EMULATED
    require_aligned<Packed<T, N>>(target);
    std::memcpy(static_cast<void*>(target), &value, sizeof value);
#else
    *reinterpret_cast<Packed<T, N>*>(target) = value;
#endif
}

template <class T, int N>
[[nodiscard]] __device__ inline Floats<N> widened(const Packed<T, N>& packed) {
    Floats<N> result;
    if constexpr (std::is_same_v<T, float>) {
        MFSDP_UNROLL
        for (int i = 0; i < N; ++i) result.lane[i] = std::bit_cast<float>(packed.word[i]);
    } else {
        MFSDP_UNROLL
        for (int i = 0; i < N / 2; ++i) {
            if constexpr (std::is_same_v<T, __nv_bfloat16>) {
                result.lane[2 * i] = std::bit_cast<float>(packed.word[i] << 16U);
                result.lane[2 * i + 1] = std::bit_cast<float>(packed.word[i] & 0xFFFF0000U);
            } else {
                __half2 pair;
                memcpy(static_cast<void*>(&pair), &packed.word[i], sizeof pair);
                const float2 wide = __half22float2(pair);
                result.lane[2 * i] = wide.x;
                result.lane[2 * i + 1] = wide.y;
            }
        }
    }
    return result;
}

template <class T, int N>
[[nodiscard]] __device__ inline Packed<T, N> packed(const Floats<N>& values) {
    Packed<T, N> result;
    if constexpr (std::is_same_v<T, float>) {
        MFSDP_UNROLL
        for (int i = 0; i < N; ++i) result.word[i] = std::bit_cast<std::uint32_t>(values.lane[i]);
    } else {
        MFSDP_UNROLL
        for (int i = 0; i < N / 2; ++i) {
            const float2 pair{values.lane[2 * i], values.lane[2 * i + 1]};
            if constexpr (std::is_same_v<T, __nv_bfloat16>) {
                const __nv_bfloat162 narrow = __float22bfloat162_rn(pair);
                memcpy(&result.word[i], &narrow, sizeof narrow);
            } else {
                const __half2 narrow = __float22half2_rn(pair);
                memcpy(&result.word[i], &narrow, sizeof narrow);
            }
        }
    }
    return result;
}

/// N elements from an aligned address; N = 1 from any.
template <int N, class T>
[[nodiscard]] __device__ inline Floats<N> load(const T* source) {
    if constexpr (N == 1) {
        return {{widened(*source)}};
    } else {
        return widened(load_packed<N>(source));
    }
}

template <class T, int N>
__device__ inline void store(T* target, const Floats<N>& values) {
    if constexpr (N == 1) {
        *target = rounded<T>(values.lane[0]);
    } else {
        store_packed(target, packed<T>(values));
    }
}

}  // namespace mfsdp::device::cuda
