#include "mfsdp/device/buffer_pool.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <utility>

namespace mfsdp::device {

namespace {

// More blocks or pending releases than this at once make the lists grow; they keep what they have grown to, so a step
// that repeats allocates nothing.
constexpr std::size_t kExpectedBlocks = 256;
// A limitless pool takes this much of the counting device's address space, so that its blocks never move.
constexpr std::int64_t kLimitlessBytes = std::int64_t{1} << 44;

}  // namespace

BufferPool::BufferPool(Device& device, MemoryLedger& ledger, MemoryCategory category, std::int64_t capacity)
    : device_(device), ledger_(ledger), category_(category), capacity_(capacity) {
    if (capacity < 0) {
        MFSDP_ASSERT(device.kind() == DeviceKind::counting, "only a device without memory has limitless pools");
        base_ = device.allocate(kLimitlessBytes);
    } else {
        memory_ = Buffer(device, ledger, category, capacity);
        base_ = memory_.data();
    }
    used_.reserve(kExpectedBlocks);
    pending_.reserve(kExpectedBlocks);
}

BufferPool::~BufferPool() {
    if (capacity_ >= 0) return;  // the buffer gives its memory back itself
    ledger_.remove(category_, high_water_);
    device_.deallocate(base_, kLimitlessBytes);
}

BufferPool::Block BufferPool::allocate(std::int64_t bytes, Stream& user) {
    MFSDP_ASSERT(bytes >= 0, "a block has no negative size, got " + std::to_string(bytes));
    MFSDP_ASSERT(&user.device() == &device_, "a block is used on a stream of the pool's device");
    if (bytes == 0) return {};
    const std::int64_t size = align_up(bytes);
    std::int64_t begin = 0;
    auto place = used_.begin();
    while (place != used_.end() && place->begin - begin < size) {
        begin = place->end;
        ++place;
    }
    if (capacity_ >= 0 && begin + size > capacity_) {
        throw DeviceError("device: the pool of category " + std::string(name(category_)) +
                          " has no room for a block of " + std::to_string(size) + " bytes: its capacity is " +
                          std::to_string(capacity_) + " bytes, of which " + std::to_string(in_use()) + " are in use.");
    }
    wait_for_releases(begin, begin + size, user);
    used_.insert(place, Used{begin, begin + size});
    raise_high_water(begin + size);
    return {begin, size, base_ + begin};
}

// Once the user's stream waits for an event, whoever comes after the user waits for it too: the covered part of a
// pending release is forgotten, what is left of it on either side stays.
void BufferPool::wait_for_releases(std::int64_t begin, std::int64_t end, Stream& user) {
    for (std::size_t i = 0; i < pending_.size();) {
        const Pending pending = pending_[i];
        const bool overlaps = pending.begin < end && begin < pending.end;
        if (overlaps) user.wait(pending.event);
        // A modelled event has no timeline and counts until its memory is used again.
        const bool reached = pending.event.timeline != nullptr && pending.event.done();
        if (!overlaps && !reached) {
            ++i;
            continue;
        }
        pending_[i] = pending_.back();
        pending_.pop_back();
        if (reached) continue;
        if (pending.begin < begin) pending_.push_back({pending.begin, begin, pending.event});
        if (end < pending.end) pending_.push_back({end, pending.end, pending.event});
    }
}

void BufferPool::raise_high_water(std::int64_t end) {
    if (end <= high_water_) return;
    // A limitless pool stands for one of fixed size, which will be this large.
    if (capacity_ < 0) ledger_.add(category_, end - high_water_);
    high_water_ = end;
}

void BufferPool::release(const Block& block, const Event& event) {
    if (block.bytes == 0) return;
    const auto place = std::lower_bound(used_.begin(), used_.end(), block.offset,
                                        [](const Used& used, std::int64_t offset) { return used.begin < offset; });
    MFSDP_ASSERT(place != used_.end() && place->begin == block.offset && place->end == block.offset + block.bytes,
                 "a block is released once, to the pool it came from");
    const Used range = *place;
    if (event.timeline != nullptr || event.modelled_seconds > 0.0) pending_.push_back({range.begin, range.end, event});
    used_.erase(place);
}

std::int64_t BufferPool::in_use() const {
    std::int64_t total = 0;
    for (const Used& used : used_) total += used.end - used.begin;
    return total;
}

PooledBuffer::PooledBuffer(BufferPool& pool, Stream& stream, std::int64_t bytes)
    : pool_(&pool), stream_(&stream), block_(pool.allocate(bytes, stream)) {}

void PooledBuffer::reset() noexcept {
    if (pool_ == nullptr) return;
    try {
        pool_->release(block_, stream_->record());
    } catch (const std::exception& failure) {
        std::cerr << "device: a pooled block could not be released: " << failure.what() << '\n';
    }
    pool_ = nullptr;
    stream_ = nullptr;
    block_ = {};
}

Tensor PooledBuffer::view(DType dtype, std::initializer_list<std::int64_t> shape, std::int64_t byte_offset) const {
    MFSDP_ASSERT(byte_offset >= 0 && byte_offset <= block_.bytes,
                 "a view starts inside its block of " + std::to_string(block_.bytes) + " bytes, got offset " +
                     std::to_string(byte_offset));
    Tensor result = Tensor::dense(block_.data == nullptr ? nullptr : block_.data + byte_offset, dtype, shape);
    MFSDP_ASSERT(result.bytes() <= block_.bytes - byte_offset,
                 result.describe() + " at byte " + std::to_string(byte_offset) + " fits into the block of " +
                     std::to_string(block_.bytes) + " bytes");
    return result;
}

void PooledBuffer::swap(PooledBuffer& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(stream_, other.stream_);
    std::swap(block_, other.block_);
}

}  // namespace mfsdp::device
