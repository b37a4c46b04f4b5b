#pragma once

// CUDA devices on which tests run what they run on the CPU: the emulated one where the build has it, and a GPU where
// there is one.

#include "mfsdp/base/error.h"
#include "mfsdp/device/cuda_device.h"

#include "support/catch.h"
#ifdef MFSDP_EMULATED_CUDA_MODULE
#include "support/emulated_cuda.h"
#endif

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace mfsdp::test {

using MakeDevice = std::function<std::unique_ptr<device::Device>()>;

/// One entry or, with a warning that names the reason, none.
inline std::vector<MakeDevice> emulated_cuda_devices() {
#ifdef MFSDP_EMULATED_CUDA_MODULE
    return {[] { return make_emulated_cuda_device("asynchronous=1"); }};
#else
    WARN("emulated CUDA device: skipped, this build has none");
    return {};
#endif
}

/// One entry or, with a warning that names the reason, none.
inline std::vector<MakeDevice> gpu_devices() {
    try {
        (void)device::cuda_device_count({});
    } catch (const ConfigError& reason) {
        WARN("GPU: skipped, " << reason.what());
        return {};
    }
    return {[] { return device::make_cuda_device({}); }};
}

}  // namespace mfsdp::test
