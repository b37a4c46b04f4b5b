#pragma once

#include "mfsdp/device/cuda_device.h"

#include <memory>
#include <string>

namespace mfsdp::device::cuda {

/// See CudaModule.
[[nodiscard]] int device_count(std::string& reason);
[[nodiscard]] std::unique_ptr<Device> make_device(const CudaDeviceOptions& options);

}  // namespace mfsdp::device::cuda
