#include "device/cuda/cuda_device.h"
#include "device/cuda_module.h"

#ifdef MFSDP_WITH_NCCL
#include "comm/nccl/nccl_executor.h"
#endif

// The entry of the CUDA module. It stands here because this layer is the highest that the module holds.

namespace {

constexpr mfsdp::device::CudaModule kModule{
    .version = mfsdp::device::kCudaModuleVersion,
    .device_count = mfsdp::device::cuda::device_count,
    .make_device = mfsdp::device::cuda::make_device,
#ifdef MFSDP_WITH_NCCL
    .make_nccl_executor = mfsdp::comm::nccl::make_executor,
#else
    .make_nccl_executor = nullptr,
#endif
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const mfsdp::device::CudaModule* mfsdp_cuda_module(int version);

const mfsdp::device::CudaModule* mfsdp_cuda_module(int version) {
    return version == kModule.version ? &kModule : nullptr;
}
