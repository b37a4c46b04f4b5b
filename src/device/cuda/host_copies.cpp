#include "device/cuda/host_copies.h"

#include "device/cuda/error.h"
#include "device/cuda/kernels.h"

#include <algorithm>
#include <cstring>

namespace mfsdp::device::cuda {

HostCopies::~HostCopies() {
    for (const Slot& slot : slots_) {
        if (slot.left != nullptr) MFSDP_CUDA_NOTHROW(cudaEventDestroy(slot.left));
    }
    MFSDP_CUDA_NOTHROW(cudaFreeHost(memory_));
}

void HostCopies::make_slots() {
    if (memory_ != nullptr) return;
    void* memory = nullptr;
    MFSDP_CUDA(cudaHostAlloc(&memory, kSlots * kSlotBytes, cudaHostAllocDefault));
    memory_ = static_cast<std::byte*>(memory);
    for (std::size_t i = 0; i < kSlots; ++i) {
        slots_[i].memory = memory_ + static_cast<std::int64_t>(i) * kSlotBytes;
        MFSDP_CUDA(cudaEventCreateWithFlags(&slots_[i].left, cudaEventDisableTiming));
    }
}

HostCopies::Slot& HostCopies::take_slot() {
    make_slots();
    Slot& slot = slots_[next_];
    next_ = (next_ + 1) % kSlots;
    MFSDP_CUDA(cudaEventSynchronize(slot.left));  // an event that was never recorded is reached
    return slot;
}

void HostCopies::to_device(std::byte* target, const std::byte* source, std::int64_t bytes) {
    for (std::int64_t begin = 0; begin < bytes; begin += kSlotBytes) {
        const auto piece = static_cast<std::size_t>(std::min(kSlotBytes, bytes - begin));
        const Slot& slot = take_slot();
        std::memcpy(slot.memory, source + begin, piece);
        MFSDP_CUDA(cudaMemcpyAsync(target + begin, slot.memory, piece, cudaMemcpyHostToDevice, stream_));
        MFSDP_CUDA(cudaEventRecord(slot.left, stream_));
    }
}

void HostCopies::to_host(std::byte* target, const std::byte* source, std::int64_t bytes) {
    for (std::int64_t begin = 0; begin < bytes; begin += kSlotBytes) {
        Slot& slot = take_slot();
        slot.target = target + begin;
        slot.bytes = static_cast<std::size_t>(std::min(kSlotBytes, bytes - begin));
        MFSDP_CUDA(cudaMemcpyAsync(slot.memory, source + begin, slot.bytes, cudaMemcpyDeviceToHost, stream_));
        MFSDP_CUDA(cudaLaunchHostFunc(stream_, copy_out, &slot));
        MFSDP_CUDA(cudaEventRecord(slot.left, stream_));
    }
}

/// Called by the runtime between two operations of the stream.
void HostCopies::copy_out(void* slot) {
    const Slot& finished = *static_cast<const Slot*>(slot);
    std::memcpy(finished.target, finished.memory, finished.bytes);
}

void run(const Context& context, const CopyFromHost& operation) {
    context.host_copies.to_device(operation.out.data, static_cast<const std::byte*>(operation.source),
                                  operation.out.bytes());
}

void run(const Context& context, const CopyToHost& operation) {
    context.host_copies.to_host(static_cast<std::byte*>(operation.target), operation.in.data, operation.in.bytes());
}

}  // namespace mfsdp::device::cuda
