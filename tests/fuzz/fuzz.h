#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace mfsdp::fuzz {

/// Ends the process as a crash: libFuzzer keeps the input.
[[noreturn]] inline void fail(const char* what, int line) {
    std::fprintf(stderr, "line %d: broken: %s\n", line, what);
    std::abort();
}

/// A file in memory with a path of its own, for parsers that open files. Always the same number for the same `place`,
/// so that a path in a corpus stays right.
class MemoryFile {
  public:
    explicit MemoryFile(int place) : descriptor_(700 + place) {
        const int made = ::memfd_create("fuzz", 0);
        if (made < 0 || ::dup2(made, descriptor_) < 0) fail("a file in memory can be made", __LINE__);
        ::close(made);
    }
    ~MemoryFile() { ::close(descriptor_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

    void set(std::string_view content) const {
        const bool done = ::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, content.data(), content.size(),
                                                                       0) == static_cast<ssize_t>(content.size());
        if (!done) fail("memory holds the input", __LINE__);
    }

  private:
    int descriptor_;
};

/// The input cut at each byte 0x1E; at least one part.
inline std::vector<std::string> parts_of(const std::uint8_t* data, std::size_t size) {
    std::vector<std::string> parts(1);
    for (std::size_t i = 0; i < size; ++i) {
        if (data[i] == 0x1E) {
            parts.emplace_back();
        } else {
            parts.back() += static_cast<char>(data[i]);
        }
    }
    return parts;
}

}  // namespace mfsdp::fuzz

/// A property of the program that no input may break.
#define FUZZ_REQUIRE(condition)                                      \
    do {                                                             \
        if (!(condition)) ::mfsdp::fuzz::fail(#condition, __LINE__); \
    } while (false)
