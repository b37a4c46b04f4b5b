#include "device/cuda/scratch.h"

#include "mfsdp/device/memory.h"

#include "device/cuda/error.h"

namespace mfsdp::device::cuda {

Scratch::~Scratch() { MFSDP_CUDA_NOTHROW(cudaFree(memory_)); }

std::byte* Scratch::reserve(std::int64_t bytes) {
    if (bytes <= bytes_) return memory_;
    // Operations issued before may still use the old memory.
    MFSDP_CUDA(cudaStreamSynchronize(stream_));
    MFSDP_CUDA(cudaFree(memory_));
    memory_ = nullptr;
    bytes_ = 0;
    void* grown = nullptr;
    MFSDP_CUDA(cudaMalloc(&grown, static_cast<std::size_t>(align_up(bytes))));
    memory_ = static_cast<std::byte*>(grown);
    bytes_ = align_up(bytes);
    return memory_;
}

}  // namespace mfsdp::device::cuda
