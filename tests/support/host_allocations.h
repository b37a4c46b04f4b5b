#pragma once

// Counts every allocation of a test program, so that a test can count those of a piece of code. For one source file of
// a program: it defines the allocation functions themselves.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace mfsdp::test {

inline std::atomic<std::int64_t> host_allocations{0};

}  // namespace mfsdp::test

void* operator new(std::size_t bytes) {
    ++mfsdp::test::host_allocations;
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    throw std::bad_alloc();
}
// The library's own form calls the one above; AddressSanitizer's does not, and would find another's memory freed below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    ++mfsdp::test::host_allocations;
    return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
