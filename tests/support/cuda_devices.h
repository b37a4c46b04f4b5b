#pragma once

// CUDA devices on which tests run what they run on the CPU: the emulated one where the build has it, and a GPU where
// there is one.

#include "mfsdp/base/error.h"
#include "mfsdp/device/cpu_device.h"
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

/// One entry for each of the settings or, with a warning that names the reason, none.
inline std::vector<MakeDevice> emulated_cuda_devices(const std::vector<std::string>& settings = {"asynchronous=1"}) {
#ifdef MFSDP_EMULATED_CUDA_MODULE
    std::vector<MakeDevice> devices;
    for (const std::string& setting : settings) {
        devices.emplace_back([setting] { return make_emulated_cuda_device(setting); });
    }
    return devices;
#else
    (void)settings;
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

/// A device and what messages call it.
struct NamedDevice {
    std::string name;
    MakeDevice make;
};

/// The CPU and, where the build has it, the emulated CUDA device, for GENERATE(from_range(...)).
inline std::vector<NamedDevice> cpu_and_emulated_cuda() {
    std::vector<NamedDevice> devices{{"the CPU", [] { return device::make_cpu_device({.threads = 2}); }}};
    for (const MakeDevice& make : emulated_cuda_devices()) devices.push_back({"the emulated CUDA device", make});
    return devices;
}

}  // namespace mfsdp::test
