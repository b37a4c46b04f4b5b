// Mistakes planted one at a time: `emulated_cuda_checks NAME` must end with a sentence about it, or, for those that
// show in results, print "noticed".

#include "device/cuda/launch.h"
#include "emulated_cuda/runtime.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <cublasLt.h>

namespace mfsdp::device::cuda {

// The module's own is not linked: it knows more of the project than this program needs.
void check(cudaError_t status, const char* call, const char* file, int line) {
    if (status == cudaSuccess) return;
    std::cerr << file << ":" << line << ": " << call << ": " << cudaGetErrorString(status) << '\n';
    std::exit(EXIT_FAILURE);
}

namespace {

constexpr int kThreads = 64;

/// Reverses a block's numbers through shared memory.
template <bool kWaits>
__global__ void reverse_kernel(float* values) {
    MFSDP_SHARED(float, shared[kThreads]);
    shared[threadIdx.x] = values[threadIdx.x];
    if (kWaits) __syncthreads();
    values[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

__global__ void divergent_kernel() {
    if (threadIdx.x == 0) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}

__global__ void half_warp_kernel(float* values) {
    values[threadIdx.x] = __shfl_xor_sync(0x0000FFFFU, values[threadIdx.x], 1);
}

__global__ void early_return_kernel(float* values) {
    if (threadIdx.x >= 16) return;
    values[threadIdx.x] = __shfl_down_sync(0xFFFFFFFFU, values[threadIdx.x], 8);
}

__global__ void fill_kernel(float* values, std::int64_t count, float value) {
    for (std::int64_t i = global_index(); i < count; i += global_count()) values[i] = value;
}

__global__ void add_kernel(float* values, std::int64_t count, float value) {
    for (std::int64_t i = global_index(); i < count; i += global_count()) values[i] += value;
}

__global__ void read_shared_kernel(float* values) {
    MFSDP_DYNAMIC_SHARED(float, shared);
    values[threadIdx.x] = shared[threadIdx.x];
}

__global__ void overflow_kernel(float* values) {
    // Far more than a fiber's stack; the compiler must not see that it is not needed.
    volatile float large[1 << 17];
    large[threadIdx.x] = 1.0F;
    values[threadIdx.x] = large[threadIdx.x];
}

/// A stream, device memory and pinned memory, released unless told otherwise.
struct Bench {
    static constexpr std::int64_t kCount = 4096;
    static constexpr std::size_t kBytes = kCount * sizeof(float);
    cudaStream_t stream = nullptr;
    float* values = nullptr;
    float* host = nullptr;

    Bench() {
        MFSDP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        void *device_memory = nullptr, *host_memory = nullptr;
        MFSDP_CUDA(cudaMalloc(&device_memory, kBytes));
        MFSDP_CUDA(cudaHostAlloc(&host_memory, kBytes, cudaHostAllocDefault));
        values = static_cast<float*>(device_memory);
        host = static_cast<float*>(host_memory);
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;
    ~Bench() {
        MFSDP_CUDA(cudaFree(values));
        MFSDP_CUDA(cudaFreeHost(host));
        MFSDP_CUDA(cudaStreamDestroy(stream));
    }
    void fetch(cudaStream_t from) {
        MFSDP_CUDA(cudaMemcpyAsync(host, values, kBytes, cudaMemcpyDeviceToHost, from));
        MFSDP_CUDA(cudaStreamSynchronize(from));
    }
};

void say(bool noticed) { std::cout << (noticed ? "noticed\n" : "not noticed\n"); }

/// Whether a block's numbers come back in reverse order.
template <bool kWaits>
bool reverses(bool backwards) {
    emulated_cuda::settings().backwards = backwards;
    Bench bench;
    for (int i = 0; i < kThreads; ++i) bench.host[i] = static_cast<float>(i);
    MFSDP_CUDA(cudaMemcpyAsync(bench.values, bench.host, Bench::kBytes, cudaMemcpyHostToDevice, bench.stream));
    launch_kernel(reverse_kernel<kWaits>, Grid{1, kThreads}, bench.stream, bench.values);
    bench.fetch(bench.stream);
    for (int i = 0; i < kThreads; ++i) {
        if (bench.host[i] != static_cast<float>(kThreads - 1 - i)) return false;
    }
    return true;
}

/// Whether a stream sees what another has written, with some seed.
bool streams_agree(std::uint64_t seed, bool waits) {
    emulated_cuda::settings().asynchronous = true;
    emulated_cuda::settings().seed = seed;
    Bench bench;
    cudaStream_t other = nullptr;
    cudaEvent_t event = nullptr;
    MFSDP_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    MFSDP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int i = 0; i < 8; ++i)
        launch_kernel(fill_kernel, Grid{2, 64}, bench.stream, bench.values, Bench::kCount, 1.0F);
    MFSDP_CUDA(cudaEventRecord(event, bench.stream));
    if (waits) MFSDP_CUDA(cudaStreamWaitEvent(other, event, cudaEventWaitDefault));
    launch_kernel(add_kernel, Grid{2, 64}, other, bench.values, Bench::kCount, 1.0F);
    bench.fetch(other);
    const bool agree = bench.host[0] == 2.0F && bench.host[Bench::kCount - 1] == 2.0F;
    MFSDP_CUDA(cudaStreamDestroy(other));
    MFSDP_CUDA(cudaStreamSynchronize(bench.stream));
    MFSDP_CUDA(cudaEventDestroy(event));
    return agree;
}

/// Whether the host sees a copy that it has not waited for as not done, with some seed.
bool host_runs_ahead(std::uint64_t seed) {
    emulated_cuda::settings().asynchronous = true;
    emulated_cuda::settings().seed = seed;
    Bench bench;
    bench.host[0] = 5.0F;
    for (int i = 0; i < 8; ++i)
        launch_kernel(fill_kernel, Grid{2, 64}, bench.stream, bench.values, Bench::kCount, 1.0F);
    MFSDP_CUDA(cudaMemcpyAsync(bench.host, bench.values, Bench::kBytes, cudaMemcpyDeviceToHost, bench.stream));
    return bench.host[0] == 5.0F;
}

template <class Body>
bool for_some_seed(const Body& body) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        if (body(seed)) return true;
    }
    return false;
}

template <class Body>
bool for_all_seeds(const Body& body) {
    return !for_some_seed([&](std::uint64_t seed) { return !body(seed); });
}

void in_a_bench(const std::function<void(Bench&)>& body) {
    Bench bench;
    body(bench);
}

const std::map<std::string, std::function<void()>>& checks() {
    static const std::map<std::string, std::function<void()>> result{
        {"nothing", [] { in_a_bench([](Bench&) {}); }},
        {"leaked_memory",
         [] {
             void* address = nullptr;
             MFSDP_CUDA(cudaMalloc(&address, 48));
         }},
        {"leaked_pinned_memory",
         [] {
             void* address = nullptr;
             MFSDP_CUDA(cudaHostAlloc(&address, 48, cudaHostAllocDefault));
         }},
        {"leaked_event",
         [] {
             cudaEvent_t event = nullptr;
             MFSDP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
         }},
        {"leaked_handle",
         [] {
             cublasLtHandle_t handle = nullptr;
             (void)cublasLtCreate(&handle);
         }},
        {"freed_twice", [] { in_a_bench([](Bench& bench) { MFSDP_CUDA(cudaFree(bench.values)); }); }},
        {"freed_as_another_kind", [] { in_a_bench([](Bench& bench) { MFSDP_CUDA(cudaFree(bench.host)); }); }},
        {"event_destroyed_twice",
         [] {
             cudaEvent_t event = nullptr;
             MFSDP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
             MFSDP_CUDA(cudaEventDestroy(event));
             MFSDP_CUDA(cudaEventDestroy(event));
         }},
        {"fresh_memory_read",
         [] {
             in_a_bench([](Bench& bench) {
                 bench.fetch(bench.stream);
                 say(std::isnan(bench.host[0]) && std::isnan(bench.host[Bench::kCount - 1]));
             });
         }},
        {"fresh_shared_memory_read",
         [] {
             in_a_bench([](Bench& bench) {
                 launch_kernel(read_shared_kernel, Grid{1, 64, 64 * sizeof(float)}, bench.stream, bench.values);
                 bench.fetch(bench.stream);
                 say(std::isnan(bench.host[0]) && std::isnan(bench.host[63]));
             });
         }},
        {"missing_barrier", [] { say(!(reverses<false>(false) && reverses<false>(true))); }},
        {"barrier", [] { say(reverses<true>(false) && reverses<true>(true)); }},
        {"missing_event", [] { say(for_some_seed([](auto seed) { return !streams_agree(seed, false); })); }},
        {"event", [] { say(for_all_seeds([](auto seed) { return streams_agree(seed, true); })); }},
        {"missing_synchronize", [] { say(for_some_seed(host_runs_ahead)); }},
        {"divergent_barrier",
         [] { in_a_bench([](Bench& bench) {
                  launch_kernel(divergent_kernel, Grid{1, 64}, bench.stream);
              }); }},
        {"partial_mask",
         [] {
             in_a_bench([](Bench& bench) { launch_kernel(half_warp_kernel, Grid{1, 32}, bench.stream, bench.values); });
         }},
        {"absent_lane",
         [] {
             in_a_bench([](Bench& bench) {
                 launch_kernel(early_return_kernel, Grid{1, 32}, bench.stream, bench.values);
             });
         }},
        {"too_many_threads",
         [] {
             in_a_bench([](Bench& bench) {
                 launch_kernel(fill_kernel, Grid{1, 1025}, bench.stream, bench.values, Bench::kCount, 1.0F);
             });
         }},
        {"stack_overflow",
         [] {
             in_a_bench([](Bench& bench) { launch_kernel(overflow_kernel, Grid{1, 1}, bench.stream, bench.values); });
         }},
        {"copy_beyond_the_end",
         [] {
             in_a_bench([](Bench& bench) {
                 MFSDP_CUDA(cudaMemcpyAsync(bench.values + 1, bench.host, Bench::kBytes, cudaMemcpyHostToDevice,
                                            bench.stream));
             });
         }},
        {"copy_from_ordinary_memory",
         [] {
             in_a_bench([](Bench& bench) {
                 const std::vector<float> ordinary(Bench::kCount);
                 MFSDP_CUDA(cudaMemcpyAsync(bench.values, ordinary.data(), Bench::kBytes, cudaMemcpyHostToDevice,
                                            bench.stream));
             });
         }},
        {"copy_of_unknown_kind",
         [] {
             in_a_bench([](Bench& bench) {
                 MFSDP_CUDA(cudaMemcpyAsync(bench.values, bench.host, Bench::kBytes, cudaMemcpyDefault, bench.stream));
             });
         }},
        {"default_stream",
         [] {
             launch_kernel(divergent_kernel, Grid{1, 1}, nullptr);
         }},
        {"blocking_stream",
         [] {
             cudaStream_t stream = nullptr;
             MFSDP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamDefault));
         }},
        {"unknown_attribute",
         [] {
             cublasLtMatmulDescOpaque_t description{};
             (void)cublasLtMatmulDescInit(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
             const std::int32_t value = 0;
             (void)cublasLtMatmulDescSetAttribute(&description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &value, sizeof value);
         }},
        {"unknown_epilogue",
         [] {
             cublasLtMatmulDescOpaque_t description{};
             (void)cublasLtMatmulDescInit(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
             const cublasLtEpilogue_t value = CUBLASLT_EPILOGUE_RELU;
             (void)cublasLtMatmulDescSetAttribute(&description, CUBLASLT_MATMUL_DESC_EPILOGUE, &value, sizeof value);
         }},
        {"odd_auxiliary_rows",
         [] {
             cublasLtHandle_t handle = nullptr;
             (void)cublasLtCreate(&handle);
             constexpr std::int64_t kSide = 8, kLeading = 12;
             cublasLtMatmulDescOpaque_t description{};
             (void)cublasLtMatmulDescInit(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
             const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
                 (void)cublasLtMatmulDescSetAttribute(&description, attribute, &value, sizeof value);
             };
             set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX);
             set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, reinterpret_cast<void*>(16));
             set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, kLeading);
             cublasLtMatrixLayoutOpaque_t matrix{};
             (void)cublasLtMatrixLayoutInit(&matrix, CUDA_R_16BF, kSide, kSide, kSide);
             cublasLtMatmulPreferenceOpaque_t preference{};
             (void)cublasLtMatmulPreferenceInit(&preference);
             cublasLtMatmulHeuristicResult_t heuristic{};
             int found = 0;
             (void)cublasLtMatmulAlgoGetHeuristic(handle, &description, &matrix, &matrix, &matrix, &matrix, &preference,
                                                  1, &heuristic, &found);
         }},
    };
    return result;
}

}  // namespace

}  // namespace mfsdp::device::cuda

int main(int count, char** arguments) {
    const auto& checks = mfsdp::device::cuda::checks();
    const auto check = checks.find(count == 2 ? arguments[1] : "");
    if (check == checks.end()) {
        for (const auto& [name, body] : checks) std::cout << name << '\n';
        return count == 1 ? 0 : 2;
    }
    check->second();
    return 0;
}
