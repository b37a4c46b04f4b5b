#pragma once

#include "mfsdp/device/operation_table.h"
#include "mfsdp/device/stream.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace mfsdp::device {

enum class DeviceKind : std::uint8_t { cpu, cuda, counting };

/// A place that holds memory and computes. Streams and buffers must not outlive it.
class Device {
  public:
    Device() = default;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    virtual ~Device() = default;

    [[nodiscard]] virtual DeviceKind kind() const = 0;
    /// Name of the hardware and the libraries that decide bits, e.g. "cpu avx2 own products"; ranks compare it.
    [[nodiscard]] virtual std::string description() const = 0;

    [[nodiscard]] virtual std::unique_ptr<Stream> make_stream() = 0;

    /// Memory aligned to 256 bytes; DeviceError if there is none. Contents are undefined.
    [[nodiscard]] virtual std::byte* allocate(std::int64_t bytes) = 0;
    virtual void deallocate(std::byte* address, std::int64_t bytes) noexcept = 0;

    /// The address at which a host transport may read and write the memory behind a device address; nullptr if the
    /// host cannot reach it (or there is no memory at all, as on the counting device).
    [[nodiscard]] virtual std::byte* host_address(std::byte* address) const = 0;

    /// Bytes of device memory that operations keep for themselves, beside buffers. They grow with the largest shapes
    /// seen and stay once a step has seen all of its shapes.
    [[nodiscard]] virtual std::int64_t working_bytes() const { return 0; }

    /// What whoever runs should know of how operations are computed, one sentence a line: a library that declines a
    /// shape, say. Complete once a step has seen all of its shapes.
    [[nodiscard]] virtual std::string remarks() const { return {}; }

    [[nodiscard]] virtual OperationTable& operations() = 0;

    /// What the host issues from here to the matching end_range() stands under `name` in the records of a profiler.
    virtual void begin_range(const char* /*name*/) {}
    virtual void end_range() {}
};

/// A named part of the host's work, for profilers: from here to the end of the scope.
class Range {
  public:
    Range(Device& device, const char* name) : device_(device) { device.begin_range(name); }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
    ~Range() { device_.end_range(); }

  private:
    Device& device_;
};

/// Checks an operation and issues it to the stream's device. Asynchronous on `stream`.
template <class Op>
void launch(Stream& stream, const Op& operation) {
    operation.check();
    static_cast<OperationSlot<Op>&>(stream.device().operations()).run(stream, operation);
}

}  // namespace mfsdp::device
