#pragma once

// The language that kernels are written in: CUDA C++ as nvcc and, for the emulated device, g++ understand it.
//
//     template <class T>
//     __global__ void scale(T* values, std::int64_t count, float factor) {
//         MFSDP_SHARED(float, partial[32]);             // __shared__ float partial[32];
//         MFSDP_DYNAMIC_SHARED(float, tile);            // float* tile = the launch's shared_bytes, aligned to 16
//         const std::int64_t i = global_index();
//         ...
//     }
//     launch_kernel(scale<float>, Grid{blocks, 256, shared_bytes}, context.stream, values, count, factor);
//
// Common to both: threadIdx, blockIdx, blockDim, gridDim, __syncthreads, __syncthreads_or, __syncwarp,
// __shfl_sync, __shfl_xor_sync, __shfl_down_sync, __ballot_sync (all 32 lanes of a warp take part, or those that have
// not returned), atomicAdd and atomicMax on integers, __threadfence, the C mathematical functions with their f,
// rsqrtf, __expf, __logf, __fdividef, __ldg, and std::bit_cast, std::min, std::max of constant expressions.
// Fused multiply-adds are written out (fmaf): neither compiler contracts a product and a sum.
// What only a GPU has (PTX, tensor cores, asynchronous copies) stands behind #ifndef MFSDP_CUDA_EMULATED, beside a
// plain path that computes the same.

#include "device/cuda/error.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define MFSDP_PRAGMA(text) _Pragma(#text)
#ifdef MFSDP_CUDA_EMULATED
#include "emulated_cuda/kernel.h"
#define MFSDP_UNROLL MFSDP_PRAGMA(GCC unroll 32)
#define MFSDP_UNROLL_BY(times) MFSDP_PRAGMA(GCC unroll times)
#else
#define MFSDP_SHARED(type, declarator) __shared__ __align__(16) type declarator
#define MFSDP_DYNAMIC_SHARED(type, name)                                  \
    extern __shared__ __align__(16) unsigned char mfsdp_dynamic_shared[]; \
    type* const name = reinterpret_cast<type*>(mfsdp_dynamic_shared)
#define MFSDP_UNROLL MFSDP_PRAGMA(unroll)
#define MFSDP_UNROLL_BY(times) MFSDP_PRAGMA(unroll times)
#endif

namespace mfsdp::device::cuda {

inline constexpr int kWarpSize = 32;
/// Blocks may have 48 KiB of shared memory without asking for it, which launch_kernel does for more. Kernels have a few
/// hundred bytes of their own beside what a launch names.
inline constexpr std::size_t kPlainSharedBytes = 46 * 1024;

/// How a kernel is launched. At most 2^31 - 1 blocks in x, 65535 in y and z; at most 1024 threads in a block.
struct Grid {
    dim3 blocks;
    dim3 threads;
    std::size_t shared_bytes = 0;
};

/// ceil(count / size), for numbers of blocks.
[[nodiscard]] constexpr std::int64_t pieces_of(std::int64_t count, std::int64_t size) {
    return (count + size - 1) / size;
}

/// Index of the calling thread in a one-dimensional grid, and the number of its threads.
[[nodiscard]] __device__ inline std::int64_t global_index() {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
[[nodiscard]] __device__ inline std::int64_t global_count() {
    return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

/// Launches a kernel on `stream`; arguments are converted to the kernel's parameters. A grid without blocks launches
/// nothing. DeviceError if the launch is refused.
template <class... Parameters>
void launch_kernel(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
                   std::type_identity_t<Parameters>... arguments) {
    if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
#ifdef MFSDP_CUDA_EMULATED
    MFSDP_CUDA(
        emulated_cuda::launch(grid.blocks, grid.threads, grid.shared_bytes, stream, [=] { kernel(arguments...); }));
#else
    if (grid.shared_bytes > kPlainSharedBytes) {
        MFSDP_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(grid.shared_bytes)));
    }
    // In a header clang-format takes >>> for brackets.
    // clang-format off
    kernel<<<grid.blocks, grid.threads, grid.shared_bytes, stream>>>(arguments...);
    // clang-format on
    MFSDP_CUDA(cudaGetLastError());
#endif
}

}  // namespace mfsdp::device::cuda
