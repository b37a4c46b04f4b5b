#pragma once

#include "mfsdp/device/device.h"

#include <memory>
#include <string>

namespace mfsdp::device {

/// How the CUDA device works.
struct CudaDeviceOptions {
    int ordinal = 0;  ///< which of the GPUs that this process sees
    /// The same bits on every run; false lets libraries choose faster algorithms that add in varying order.
    bool deterministic = true;
    /// The library of the backend; empty: libmfsdp_cuda.so beside the program or in its library folder.
    std::string module_path;
};

/// GPUs that this process sees. ConfigError, with the reason, if the backend's library, the driver or a GPU is missing.
[[nodiscard]] int cuda_device_count(const std::string& module_path);

/// ConfigError as above, or if there is no such GPU. Streams of the device are asynchronous; the host cannot reach its
/// memory.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options);

}  // namespace mfsdp::device
