#include "mfsdp/device/memory.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <utility>

namespace mfsdp::device {

std::string_view name(MemoryCategory category) {
    switch (category) {
        case MemoryCategory::weights:
            return "weights";
        case MemoryCategory::masters:
            return "masters";
        case MemoryCategory::gradients:
            return "gradients";
        case MemoryCategory::state:
            return "state";
        case MemoryCategory::workspace:
            return "workspace";
        case MemoryCategory::gathered:
            return "gathered";
        case MemoryCategory::gradient_buffers:
            return "gradient_buffers";
        case MemoryCategory::activations:
            return "activations";
        case MemoryCategory::transfer:
            return "transfer";
    }
    return "?";
}

void MemoryLedger::add(MemoryCategory category, std::int64_t bytes) {
    in_use_[index(category)] += bytes;
    raise_peak(category, in_use_[index(category)]);
}

void MemoryLedger::remove(MemoryCategory category, std::int64_t bytes) noexcept { in_use_[index(category)] -= bytes; }

void MemoryLedger::raise_peak(MemoryCategory category, std::int64_t bytes) {
    peak_[index(category)] = std::max(peak_[index(category)], bytes);
}

Buffer::Buffer(Device& device, MemoryLedger& ledger, MemoryCategory category, std::int64_t bytes)
    : device_(&device), ledger_(&ledger), category_(category), bytes_(bytes) {
    MFSDP_ASSERT(bytes >= 0, "a buffer has no negative size, got " + std::to_string(bytes));
    if (bytes == 0) return;
    try {
        data_ = device.allocate(bytes);
    } catch (const OutOfMemoryError& error) {
        std::string in_use;
        for (std::int64_t other = 0; other < kMemoryCategories; ++other) {
            const std::int64_t held = ledger.in_use(static_cast<MemoryCategory>(other));
            if (held == 0) continue;
            in_use += (in_use.empty() ? "" : ", ") + std::string(name(static_cast<MemoryCategory>(other))) + " " +
                      std::to_string(held);
        }
        throw OutOfMemoryError(std::string(error.what()) + ": " + std::to_string(bytes) + " for " +
                               std::string(name(category)) + "; bytes in use: " + (in_use.empty() ? "none" : in_use));
    }
    ledger.add(category, bytes);
}

Buffer::~Buffer() {
    if (data_ == nullptr) return;
    ledger_->remove(category_, bytes_);
    device_->deallocate(data_, bytes_);
}

Tensor Buffer::view(DType dtype, std::initializer_list<std::int64_t> shape, std::int64_t byte_offset) const {
    MFSDP_ASSERT(byte_offset >= 0 && byte_offset <= bytes_, "a view starts inside its buffer of " +
                                                                std::to_string(bytes_) + " bytes, got offset " +
                                                                std::to_string(byte_offset));
    Tensor result = Tensor::dense(data_ == nullptr ? nullptr : data_ + byte_offset, dtype, shape);
    MFSDP_ASSERT(result.bytes() <= bytes_ - byte_offset, result.describe() + " at byte " + std::to_string(byte_offset) +
                                                             " fits into the buffer of " + std::to_string(bytes_) +
                                                             " bytes of " + std::string(name(category_)));
    return result;
}

void Buffer::swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(ledger_, other.ledger_);
    std::swap(category_, other.category_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
}

}  // namespace mfsdp::device
