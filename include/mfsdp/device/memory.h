#pragma once

#include "mfsdp/device/device.h"
#include "mfsdp/device/tensor.h"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace mfsdp::device {

/// What memory is for; every buffer has one, and the memory tables of the programs are by category.
enum class MemoryCategory : std::uint8_t {
    weights,           ///< parameters at rest
    masters,           ///< fp32 masters of low-precision weights
    gradients,         ///< accumulators on the owner
    state,             ///< optimizer state
    workspace,         ///< scratch of operations and optimizers
    gathered,          ///< foreign weights while a unit uses them
    gradient_buffers,  ///< leaves: finished gradients of one micro-batch
    activations,       ///< saved tensors and temporaries of forward and backward
    transfer,          ///< receive scratch, tokens, losses
};
inline constexpr std::int64_t kMemoryCategories = 9;
/// Every parameter and every pooled block starts on a multiple of this many bytes.
inline constexpr std::int64_t kAlignment = 256;

[[nodiscard]] std::string_view name(MemoryCategory category);
/// Bytes rounded up to a multiple of kAlignment.
[[nodiscard]] constexpr std::int64_t align_up(std::int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Bytes in use and their peak, by category. One per rank; not thread-safe (the host issues in one order).
class MemoryLedger {
  public:
    void add(MemoryCategory category, std::int64_t bytes);
    void remove(MemoryCategory category, std::int64_t bytes) noexcept;
    [[nodiscard]] std::int64_t in_use(MemoryCategory category) const { return in_use_[index(category)]; }
    [[nodiscard]] std::int64_t peak(MemoryCategory category) const { return peak_[index(category)]; }
    /// Raises the peak to `bytes` if it is lower (used by pools, whose size is their high-water mark).
    void raise_peak(MemoryCategory category, std::int64_t bytes);

  private:
    static std::size_t index(MemoryCategory category) { return static_cast<std::size_t>(category); }
    std::array<std::int64_t, kMemoryCategories> in_use_{};
    std::array<std::int64_t, kMemoryCategories> peak_{};
};

/// Owns device memory of one category. Move-only; an empty buffer (0 bytes) is legal.
class Buffer {
  public:
    Buffer() = default;
    Buffer(Device& device, MemoryLedger& ledger, MemoryCategory category, std::int64_t bytes);
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Buffer();

    [[nodiscard]] std::int64_t bytes() const { return bytes_; }
    [[nodiscard]] std::byte* data() const { return data_; }
    /// A dense view at `byte_offset`; InternalError if it does not fit.
    [[nodiscard]] Tensor view(DType dtype, std::initializer_list<std::int64_t> shape,
                              std::int64_t byte_offset = 0) const;

  private:
    void swap(Buffer& other) noexcept;
    Device* device_ = nullptr;
    MemoryLedger* ledger_ = nullptr;
    MemoryCategory category_ = MemoryCategory::workspace;
    std::byte* data_ = nullptr;
    std::int64_t bytes_ = 0;
};

}  // namespace mfsdp::device
