#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace mfsdp::device::cuda {

/// Copies between the host and the device through pinned memory, so that they run on the stream while the host goes on.
/// The memory is a ring of slots: a copy takes as many as it needs, and blocks the host only for slots that earlier
/// copies have not left.
class HostCopies {
  public:
    explicit HostCopies(cudaStream_t stream) : stream_(stream) {}
    HostCopies(const HostCopies&) = delete;
    HostCopies& operator=(const HostCopies&) = delete;
    ~HostCopies();

    /// `source` has been read when this returns.
    void to_device(std::byte* target, const std::byte* source, std::int64_t bytes);
    /// `target` has been written when the stream has passed this point.
    void to_host(std::byte* target, const std::byte* source, std::int64_t bytes);

  private:
    static constexpr std::int64_t kSlotBytes = 1 << 20;
    static constexpr std::size_t kSlots = 8;

    struct Slot {
        std::byte* memory = nullptr;
        cudaEvent_t left = nullptr;  ///< the last copy through this slot is over
        // What the host copies out of the slot once the device has written it.
        std::byte* target = nullptr;
        std::size_t bytes = 0;
    };

    void make_slots();
    [[nodiscard]] Slot& take_slot();
    static void CUDART_CB copy_out(void* slot);

    cudaStream_t stream_;
    std::byte* memory_ = nullptr;
    std::array<Slot, kSlots> slots_{};
    std::size_t next_ = 0;
};

}  // namespace mfsdp::device::cuda
