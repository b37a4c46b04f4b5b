#pragma once

#include "mfsdp/device/device.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace mfsdp::device {

/// Who computes matrix products; the bits of a result depend on it, and description() names it.
enum class ProductKernel : std::uint8_t {
    /// oneDNN where this program has it and the processor has wider vectors (AVX-512) than our own kernel uses, else
    /// our own: on AVX2 that is as fast, and faster on panels of weight gradients.
    automatic,
    own,
    onednn,  ///< ConfigError if this program was built without it
};

/// Decompositions that report failure, for tests of what follows one.
enum class SolverFault : std::uint8_t { none, single_precision, all };

/// How the CPU device works. The defaults are for production; the test modes of streams and addresses change no bits.
struct CpuDeviceOptions {
    int threads = 1;
    /// Streams run on threads of their own with random pauses between operations, so that a missing event shows.
    bool asynchronous_streams = false;
    /// Seed of those pauses.
    std::uint64_t delay_seed = 1;
    /// Called instead of those pauses, on the stream's thread, with the stream's number in the order of make_stream().
    std::function<void(std::size_t stream)> before_task = nullptr;
    /// Device addresses lie in an inaccessible reservation; only operations, host_address() and explicit copies know
    /// the displacement to real memory. Whatever else follows a device address faults.
    bool guard_addresses = false;
    ProductKernel products = ProductKernel::automatic;
    /// > 0: the device has this much memory; more is an OutOfMemoryError. 0: what the machine has.
    std::int64_t memory_bytes = 0;
    SolverFault solver_fault = SolverFault::none;
};

/// Whether this program was built with LAPACK, which symmetric decompositions and QR need.
[[nodiscard]] bool cpu_has_lapack();

/// ConfigError if this program was compiled for instructions that the processor lacks, or without the wanted products.
[[nodiscard]] std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options);

}  // namespace mfsdp::device
