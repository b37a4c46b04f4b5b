#pragma once

#include "mfsdp/comm/executor.h"
#include "mfsdp/comm/transfer_schedule.h"
#include "mfsdp/device/device.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mfsdp::test {

/// Value of group element g in contributor c's leaf, or (c = -1) in a shard, or (c = -2) in an accumulator before the
/// sum. Signs, exponents and all bits of the mantissa vary, so that another order of additions gives other bits.
[[nodiscard]] float value_of(int contributor, std::int64_t group_element);

/// What group element g must be after the movement: a copy, or the leaves added one by one in order, in float32
/// (bfloat16 leaves and copies have the upper half of value_of).
[[nodiscard]] float expected_value(const comm::Movement& movement, std::int64_t group_element);

/// One rank's real buffers for a movement of float32 or bfloat16, filled.
class MovementData {
  public:
    MovementData(device::Device& device, const comm::Movement& movement, int rank, std::int64_t scratch_bytes);
    MovementData(const MovementData&) = delete;
    MovementData& operator=(const MovementData&) = delete;
    ~MovementData();

    /// Fills the buffers as before the movement; what the movement must not touch holds a mark.
    void fill();
    [[nodiscard]] comm::TransferBuffers buffers() const { return buffers_; }
    /// Number of elements that are not, bit for bit, what they must be: wanted ones, and marks in between.
    [[nodiscard]] std::int64_t wrong_elements() const;
    [[nodiscard]] std::int64_t compared_elements() const;

  private:
    void allocate(comm::BufferRole role, std::int64_t bytes);
    /// Between the device's buffers and their images: directly, or by copies where the host cannot reach the device.
    void upload() const;
    [[nodiscard]] std::vector<std::byte> download(comm::BufferRole role) const;
    [[nodiscard]] std::byte* image(comm::BufferRole role) { return images_[static_cast<std::size_t>(role)].data(); }

    device::Device& device_;
    const comm::Movement& movement_;
    int rank_;
    std::vector<std::int64_t> bytes_;
    std::vector<std::vector<std::byte>> images_;
    comm::TransferBuffers buffers_;
};

}  // namespace mfsdp::test
