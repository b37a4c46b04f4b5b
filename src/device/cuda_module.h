#pragma once

// The border between the programs and the CUDA backend, which is a library opened at run time: a run on the CPU loads
// no CUDA, and tests put the emulated device in its place. Both sides are built from one tree by one compiler, so C++
// types cross it; the version guards against a library left over from another build.

#include "mfsdp/device/cuda_device.h"

#include <memory>
#include <string>

namespace mfsdp::comm {
class Communicator;
class Executor;
struct NcclExecutorOptions;
}  // namespace mfsdp::comm

namespace mfsdp::device {

/// To be raised with every change of CudaModule, of a class that crosses the border, or of the operation table.
inline constexpr int kCudaModuleVersion = 3;

struct CudaModule {
    int version = 0;
    /// GPUs that this process sees. 0 with the reason in `reason` if the driver is missing or refuses.
    int (*device_count)(std::string& reason) = nullptr;
    /// options.ordinal < device_count; DeviceError if the GPU cannot be used.
    std::unique_ptr<Device> (*make_device)(const CudaDeviceOptions& options) = nullptr;
    /// `device` was made by make_device; see include/mfsdp/comm/executor.h. Null where the backend was built
    /// without NCCL. The one place where this layer names what is above it: a library has one entry.
    std::unique_ptr<comm::Executor> (*make_nccl_executor)(comm::Communicator& communicator, Device& device,
                                                          const comm::NcclExecutorOptions& options) = nullptr;
};

/// Opens the library once per path and keeps it: NVIDIA's libraries do not survive being closed. An empty path is
/// libmfsdp_cuda.so beside the program or in the library folder beside its own. ConfigError with the reason if it is
/// not there, needs what is not there, or comes from another build.
[[nodiscard]] const CudaModule& cuda_module(const std::string& path);

}  // namespace mfsdp::device

extern "C" {
/// The one symbol of the library: null if it cannot serve this version.
using MfsdpCudaModule = const mfsdp::device::CudaModule*(int version);
}
