#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace mfsdp::device::cuda {

/// Device memory of one stream for what operations need beside their tensors: partial sums, workspaces of libraries.
/// It grows to the largest size asked for, so that a step allocates nothing once each of its shapes was seen.
class Scratch {
  public:
    explicit Scratch(cudaStream_t stream) : stream_(stream) {}
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch();

    /// At least `bytes` bytes aligned to 256 that belong to the operation being issued; the next operation on the
    /// stream gets the same memory. Contents are undefined. One call for each operation: cut pieces from it.
    [[nodiscard]] std::byte* reserve(std::int64_t bytes);
    [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  private:
    cudaStream_t stream_;
    std::byte* memory_ = nullptr;
    std::int64_t bytes_ = 0;
};

/// Cuts pieces from scratch; every piece starts on a multiple of 256 bytes. First add up, then reserve, then cut:
///
///     ScratchPlan plan;
///     const auto partial = plan.add<float>(blocks * columns);
///     std::byte* const base = context.scratch.reserve(plan.bytes());
///     float* const sums = partial.at(base);
class ScratchPlan {
  public:
    template <class T>
    struct Piece {
        std::int64_t offset;
        [[nodiscard]] T* at(std::byte* base) const { return reinterpret_cast<T*>(base + offset); }
    };

    template <class T>
    [[nodiscard]] Piece<T> add(std::int64_t count) {
        const Piece<T> piece{bytes_};
        bytes_ += (count * static_cast<std::int64_t>(sizeof(T)) + 255) / 256 * 256;
        return piece;
    }
    [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  private:
    std::int64_t bytes_ = 0;
};

}  // namespace mfsdp::device::cuda
