#include "mfsdp/base/error.h"
#include "mfsdp/comm/executor.h"

#include "device/cuda_module.h"

namespace mfsdp::comm {

std::unique_ptr<Executor> make_nccl_executor(Communicator& communicator, device::Device& device,
                                             const NcclExecutorOptions& options) {
    MFSDP_ASSERT(device.kind() == device::DeviceKind::cuda, "NCCL moves the memory of CUDA devices");
    MFSDP_ASSERT(options.give_up != nullptr, "something ends the process when NCCL does not return");
    const device::CudaModule& module = device::cuda_module(options.module_path);
    if (module.make_nccl_executor == nullptr) {
        throw ConfigError(
            "comm: the CUDA backend was built without NCCL and serves one rank; build where NCCL is installed");
    }
    return module.make_nccl_executor(communicator, device, options);
}

}  // namespace mfsdp::comm
