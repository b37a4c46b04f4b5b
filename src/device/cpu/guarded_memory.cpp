#include "device/cpu/guarded_memory.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/memory.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <sys/mman.h>

namespace mfsdp::device::cpu {

GuardedMemory::GuardedMemory() {
    constexpr auto kSize = static_cast<std::size_t>(kBytes);
    void* const reserved = mmap(nullptr, 2 * kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
        throw DeviceError("device: the guard mode cannot reserve " + std::to_string(2 * kBytes) +
                          " bytes of address space: " + std::strerror(errno) + ".");
    }
    base_ = static_cast<std::byte*>(reserved);
    if (mprotect(base_ + kBytes, kSize, PROT_READ | PROT_WRITE) != 0) {
        const std::string reason = std::strerror(errno);
        munmap(base_, 2 * kSize);
        throw DeviceError("device: the guard mode cannot open its real memory: " + reason + ".");
    }
}

GuardedMemory::~GuardedMemory() { munmap(base_, 2 * static_cast<std::size_t>(kBytes)); }

std::byte* GuardedMemory::allocate(std::int64_t bytes) {
    const std::int64_t size = align_up(bytes);
    std::int64_t begin = 0;
    for (const auto& [used_begin, used_end] : used_) {
        if (used_begin - begin >= size) break;
        begin = used_end;
    }
    if (size > kBytes - begin) {
        throw DeviceError("device: the guard mode's " + std::to_string(kBytes) + " bytes have no room for " +
                          std::to_string(size) + " more.");
    }
    used_.emplace(begin, begin + size);
    return base_ + begin;
}

void GuardedMemory::deallocate(std::byte* address) noexcept { used_.erase(address - base_); }

}  // namespace mfsdp::device::cpu
