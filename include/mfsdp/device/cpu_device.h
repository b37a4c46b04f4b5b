#pragma once

#include "mfsdp/device/device.h"

#include <cstdint>
#include <memory>

namespace mfsdp::device {

/// How the CPU device works. The defaults are for production; the two test modes change no bits.
struct CpuDeviceOptions {
    int threads = 1;
    /// Streams run on threads of their own with random pauses between operations, so that a missing event shows.
    bool asynchronous_streams = false;
    /// Seed of those pauses.
    std::uint64_t delay_seed = 1;
    /// Device addresses lie in an inaccessible reservation; only operations, host_address() and explicit copies know
    /// the displacement to real memory. Whatever else follows a device address faults.
    bool guard_addresses = false;
};

/// ConfigError if this program was compiled for instructions that the processor lacks.
[[nodiscard]] std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options);

}  // namespace mfsdp::device
