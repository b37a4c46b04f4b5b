#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace mfsdp::device::cpu {

/// Two neighbouring reservations of equal size: the first, whose addresses are handed out, cannot be accessed; the
/// second is real memory, `displacement()` bytes higher. Pages are given by the system when first written.
class GuardedMemory {
  public:
    /// DeviceError if the system refuses the address space.
    GuardedMemory();
    GuardedMemory(const GuardedMemory&) = delete;
    GuardedMemory& operator=(const GuardedMemory&) = delete;
    ~GuardedMemory();

    [[nodiscard]] std::ptrdiff_t displacement() const { return static_cast<std::ptrdiff_t>(kBytes); }
    /// The lowest free range, aligned to 256 bytes; DeviceError if there is none.
    [[nodiscard]] std::byte* allocate(std::int64_t bytes);
    void deallocate(std::byte* address) noexcept;

  private:
    static constexpr std::int64_t kBytes = std::int64_t{1} << 36;

    std::byte* base_ = nullptr;
    std::map<std::int64_t, std::int64_t> used_;  // begin -> end
};

}  // namespace mfsdp::device::cpu
