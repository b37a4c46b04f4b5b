#pragma once

#include "mfsdp/device/memory.h"

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace mfsdp::device {

/// Memory handed out and taken back many times in a step, one pool per category. Blocks are placed first-fit, lowest
/// offset first, counted in the order in which the host issues, never in the order of completion: the high-water mark
/// is the same inline, on threads and on the counting device.
///
/// Release is stream-ordered: `release(block, event)` returns at once, and whoever is given that memory next waits
/// for the event on its own stream.
class BufferPool {
  public:
    struct Block {
        std::int64_t offset = 0;
        std::int64_t bytes = 0;  ///< rounded up to kAlignment
        std::byte* data = nullptr;
    };

    /// A pool of fixed size (allocated now), or on the counting device a limitless one that only counts.
    /// `capacity` < 0 means limitless; a limitless pool on another device is an InternalError.
    BufferPool(Device& device, MemoryLedger& ledger, MemoryCategory category, std::int64_t capacity);
    BufferPool(const BufferPool&) = delete;
    BufferPool& operator=(const BufferPool&) = delete;
    ~BufferPool();

    /// A block for use on `user`, which waits for the pending releases of the same memory. DeviceError with the
    /// category, the bytes wanted and the capacity if it does not fit. 0 bytes give an empty block.
    [[nodiscard]] Block allocate(std::int64_t bytes, Stream& user);
    /// Gives a block back once `event` is reached. The event lies behind the block's allocation on its user's stream,
    /// whether or not the block was used, for the earlier releases of its memory are known to that stream only.
    void release(const Block& block, const Event& event);

    [[nodiscard]] std::int64_t high_water() const { return high_water_; }
    [[nodiscard]] std::int64_t in_use() const;
    [[nodiscard]] MemoryCategory category() const { return category_; }

  private:
    struct Used {
        std::int64_t begin, end;
    };
    struct Pending {
        std::int64_t begin, end;
        Event event;
    };

    void wait_for_releases(std::int64_t begin, std::int64_t end, Stream& user);
    void raise_high_water(std::int64_t end);

    Device& device_;
    MemoryLedger& ledger_;
    MemoryCategory category_;
    std::int64_t capacity_;
    Buffer memory_;
    std::byte* base_ = nullptr;
    std::vector<Used> used_;        // sorted by begin
    std::vector<Pending> pending_;  // released ranges whose events may not have been reached
    std::int64_t high_water_ = 0;
};

/// A block held for a scope on one stream: taken from the pool in the constructor, given back behind the stream's
/// present end in the destructor.
class PooledBuffer {
  public:
    PooledBuffer() = default;
    PooledBuffer(BufferPool& pool, Stream& stream, std::int64_t bytes);
    PooledBuffer(PooledBuffer&& other) noexcept { swap(other); }
    PooledBuffer& operator=(PooledBuffer&& other) noexcept {
        PooledBuffer moved(static_cast<PooledBuffer&&>(other));
        swap(moved);
        return *this;
    }
    ~PooledBuffer() { reset(); }

    /// Gives the block back now.
    void reset() noexcept;
    [[nodiscard]] std::byte* data() const { return block_.data; }
    [[nodiscard]] Tensor view(DType dtype, std::initializer_list<std::int64_t> shape,
                              std::int64_t byte_offset = 0) const;

  private:
    void swap(PooledBuffer& other) noexcept;
    BufferPool* pool_ = nullptr;
    Stream* stream_ = nullptr;
    BufferPool::Block block_;
};

}  // namespace mfsdp::device
