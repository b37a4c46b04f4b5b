#include "device/cuda/device.h"

#include "mfsdp/base/error.h"

#include "device/cuda/cuda_device.h"
#include "device/cuda/error.h"

namespace mfsdp::device::cuda {

namespace {

cudaDeviceProp properties_of(int ordinal) {
    // The calling thread issues to this GPU from now on.
    MFSDP_CUDA(cudaSetDevice(ordinal));
    cudaDeviceProp properties{};
    MFSDP_CUDA(cudaGetDeviceProperties(&properties, ordinal));
    return properties;
}

std::unique_ptr<FusedAttention> make_fused_attention([[maybe_unused]] bool deterministic) {
#ifdef MFSDP_WITH_CUDNN
    return make_cudnn_attention(deterministic);
#else
    return nullptr;
#endif
}

/// 13000 as 13.0.
std::string version_text(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

CudaOperations::CudaOperations(const CudaDeviceOptions& options, int multiprocessors)
    : options_(options),
      multiprocessors_(multiprocessors),
      products_(options.deterministic),
      solver_(options.deterministic),
      fused_attention_(make_fused_attention(options.deterministic)) {}

Context CudaOperations::context(CudaStream& stream) {
    MFSDP_CUDA(cudaSetDevice(options_.ordinal));
    Queue& queue = stream.queue();
    return {.stream = queue.stream(),
            .multiprocessors = multiprocessors_,
            .deterministic = options_.deterministic,
            .products = products_,
            .solver = solver_,
            .scratch = queue.scratch(),
            .host_copies = queue.host_copies(),
            .fused_attention = fused_attention_.get()};
}

CudaDevice::CudaDevice(const CudaDeviceOptions& options)
    : options_(options),
      properties_(properties_of(options.ordinal)),
      operations_(options, properties_.multiProcessorCount) {}

std::string CudaDevice::description() const {
    int runtime = 0;
    MFSDP_CUDA(cudaRuntimeGetVersion(&runtime));
    std::string text = "cuda ";
    text.append(properties_.name).append(" sm_").append(std::to_string(properties_.major * 10 + properties_.minor));
    text.append(", runtime ").append(version_text(runtime));
    text.append(", cuBLASLt ").append(std::to_string(cublasLtGetVersion())).append(", attention by ");
    const FusedAttention* const fused = operations_.fused_attention();
    text.append(fused != nullptr ? fused->description() + ", else by own kernels" : std::string("own kernels"));
    return text.append(options_.deterministic ? "" : ", order of sums not fixed");
}

std::unique_ptr<Stream> CudaDevice::make_stream() {
    MFSDP_CUDA(cudaSetDevice(options_.ordinal));
    for (const auto& queue : queues_) {
        if (!queue->taken) return std::make_unique<CudaStream>(*this, *queue);
    }
    queues_.push_back(std::make_unique<Queue>(failure_));
    return std::make_unique<CudaStream>(*this, *queues_.back());
}

std::byte* CudaDevice::allocate(std::int64_t bytes) {
    MFSDP_ASSERT(bytes > 0, "memory is allocated for at least one byte, got " + std::to_string(bytes));
    MFSDP_CUDA(cudaSetDevice(options_.ordinal));
    void* address = nullptr;
    const cudaError_t status = cudaMalloc(&address, static_cast<std::size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();  // the runtime repeats it to the next who asks
        std::size_t free = 0, total = 0;
        MFSDP_CUDA(cudaMemGetInfo(&free, &total));
        throw OutOfMemoryError("device: " + std::to_string(bytes) + " bytes do not fit, " + std::to_string(free) +
                               " of the GPU's " + std::to_string(total) + " bytes are free");
    }
    MFSDP_CUDA(status);
    return static_cast<std::byte*>(address);
}

void CudaDevice::deallocate(std::byte* address, std::int64_t /*bytes*/) noexcept {
    MFSDP_CUDA_NOTHROW(cudaFree(address));
}

std::int64_t CudaDevice::working_bytes() const {
    std::int64_t total = 0;
    for (const auto& queue : queues_) total += queue->scratch().bytes();
    return total;
}

std::string CudaDevice::remarks() const {
    const FusedAttention* const fused = operations_.fused_attention();
    return fused == nullptr ? std::string() : fused->remarks();
}

int device_count(std::string& reason) {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count > 0) return count;
    (void)cudaGetLastError();
    reason = status == cudaSuccess ? "the driver shows no GPU" : cudaGetErrorString(status);
    return 0;
}

std::unique_ptr<Device> make_device(const CudaDeviceOptions& options) { return std::make_unique<CudaDevice>(options); }

}  // namespace mfsdp::device::cuda
