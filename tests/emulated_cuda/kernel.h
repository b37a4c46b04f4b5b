#pragma once

// What nvcc gives kernels, for g++: the names of CUDA C++ (see src/device/cuda/launch.h for which). Each thread of a
// block is a fiber, a block runs on one thread of the host, and blocks are spread over several.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include <cuda_runtime.h>

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace emulated_cuda {

/// What the running thread of a kernel sees of itself.
struct ThreadView {
    uint3 thread{};
    uint3 block{};
    dim3 block_size;
    dim3 grid_size;
    unsigned lane = 0;
    std::byte* dynamic_shared = nullptr;
};

/// The running thread; null outside kernels.
extern thread_local ThreadView* current;

/// Runs `thread` for every thread of the grid, on `stream`. The errors are those of a real launch.
[[nodiscard]] cudaError_t launch(dim3 blocks, dim3 threads, std::size_t shared_bytes, cudaStream_t stream,
                                 std::function<void()> thread);

/// Waits for the block's other threads; those that have returned count as there. Gives the or of all `predicate`.
int block_barrier(int predicate);
/// The same for the warp.
void warp_barrier();
/// The word that lane `source` gives at the same time. Fails if that lane has returned.
[[nodiscard]] std::uint64_t exchange(std::uint64_t word, unsigned source);
/// Bit i: whether lane i gave a predicate that is not 0.
[[nodiscard]] unsigned ballot(int predicate);
/// Ends the program with the message: what is wrong is the kernel or its caller.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

inline void require_full_mask(unsigned mask) {
    if (mask != 0xFFFFFFFFU) fail("only full masks of warps are emulated, got %08x", mask);
}

template <class T>
[[nodiscard]] T exchange_value(T value, unsigned source) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    word = exchange(word, source);
    std::memcpy(&value, &word, sizeof value);
    return value;
}

}  // namespace emulated_cuda

#define threadIdx (::emulated_cuda::current->thread)
#define blockIdx (::emulated_cuda::current->block)
#define blockDim (::emulated_cuda::current->block_size)
#define gridDim (::emulated_cuda::current->grid_size)

// Shared memory is a block's own, and a block stays on one thread of the host.
#define MFSDP_SHARED(type, declarator) alignas(16) static thread_local type declarator
#define MFSDP_DYNAMIC_SHARED(type, name) \
    type* const name = reinterpret_cast<type*>(::emulated_cuda::current->dynamic_shared)

// NOLINTBEGIN(bugprone-reserved-identifier): these are CUDA's names.
inline void __syncthreads() { emulated_cuda::block_barrier(0); }
inline int __syncthreads_or(int predicate) { return emulated_cuda::block_barrier(predicate); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU) {
    emulated_cuda::require_full_mask(mask);
    emulated_cuda::warp_barrier();
}
template <class T>
[[nodiscard]] inline T __shfl_sync(unsigned mask, T value, int source) {
    emulated_cuda::require_full_mask(mask);
    return emulated_cuda::exchange_value(value, static_cast<unsigned>(source) & 31U);
}
template <class T>
[[nodiscard]] inline T __shfl_xor_sync(unsigned mask, T value, int distance) {
    emulated_cuda::require_full_mask(mask);
    return emulated_cuda::exchange_value(value, (emulated_cuda::current->lane ^ static_cast<unsigned>(distance)) & 31U);
}
template <class T>
[[nodiscard]] inline T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
    emulated_cuda::require_full_mask(mask);
    const unsigned lane = emulated_cuda::current->lane;
    return emulated_cuda::exchange_value(value, lane + distance < 32 ? lane + distance : lane);
}
template <class T>
[[nodiscard]] inline T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
    emulated_cuda::require_full_mask(mask);
    const unsigned lane = emulated_cuda::current->lane;
    return emulated_cuda::exchange_value(value, lane >= distance ? lane - distance : lane);
}
[[nodiscard]] inline unsigned __ballot_sync(unsigned mask, int predicate) {
    emulated_cuda::require_full_mask(mask);
    return emulated_cuda::ballot(predicate);
}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
template <class T>
inline T atomicAdd(T* address, T value) {
    static_assert(std::is_integral_v<T>, "sums of floating-point numbers must not depend on the order of threads");
    return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}
template <class T>
inline T atomicMax(T* address, T value) {
    static_assert(std::is_integral_v<T>);
    std::atomic_ref<T> target(*address);
    T old = target.load(std::memory_order_relaxed);
    while (old < value && !target.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
    }
    return old;
}
template <class T>
[[nodiscard]] inline T __ldg(const T* address) {
    return *address;
}
[[nodiscard]] inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
[[nodiscard]] inline float __expf(float x) { return std::exp(x); }
[[nodiscard]] inline float __logf(float x) { return std::log(x); }
[[nodiscard]] inline float __fdividef(float a, float b) { return a / b; }
// NOLINTEND(bugprone-reserved-identifier)
