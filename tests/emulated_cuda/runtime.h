#pragma once

// Inside of the emulated runtime, for the other stand-ins: streams, memory, settings.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime.h>

namespace emulated_cuda {

/// How the emulated machine behaves; from the environment variable MFSDP_EMULATED_CUDA when first asked for, and from
/// mfsdp_emulated_cuda_configure. Both take "name=value,name=value".
struct Settings {
    int devices = 1;
    /// Streams made from now on have threads of their own, with random pauses between tasks.
    bool asynchronous = false;
    std::uint64_t seed = 1;
    /// Threads of the host that run blocks of one launch.
    int workers = 0;  // 0: one for each core
    /// Threads of a block start from the last one; results of a correct kernel do not depend on it.
    bool backwards = false;
    std::int64_t memory_bytes = std::int64_t{1} << 40;
    /// The runtime's call of this name fails, as after a fault on the GPU.
    std::string failing_call;
};
[[nodiscard]] Settings& settings();

/// Runs `task` after everything issued to the stream before. Fails for the default stream and for one that is not
/// alive.
void enqueue(cudaStream_t stream, std::function<void()> task);

/// Fails unless [address, address + bytes) lies in one living allocation of device memory; `call` is for the message.
void require_device_memory(const void* address, std::size_t bytes, const char* call);

/// Objects of other libraries, counted so that a forgotten one is reported at the end: "cublasLtHandle_t".
void* make_object(const char* kind);
/// Fails unless `object` is a living one of the kind.
void require_object(const void* object, const char* kind, const char* call);
void destroy_object(void* object, const char* kind, const char* call);

/// Sentences on everything that lives still; empty if there is nothing.
[[nodiscard]] std::string leaks();

}  // namespace emulated_cuda
