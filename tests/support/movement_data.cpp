#include "movement_data.h"

#include "movement_cases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

namespace mfsdp::test {

namespace {

constexpr float kMark = -12345.0F;

std::uint64_t mix(std::uint64_t x) {  // SplitMix64, Vigna 2015
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
}

void store(std::byte* base, device::DType dtype, std::int64_t index, float value) {
    if (dtype == device::DType::bfloat16) {
        const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
        std::memcpy(base + 2 * index, &upper, 2);
    } else {
        std::memcpy(base + 4 * index, &value, 4);
    }
}

std::uint32_t bits_at(const std::byte* base, device::DType dtype, std::int64_t index) {
    std::uint32_t bits = 0;
    if (dtype == device::DType::bfloat16) {
        std::uint16_t upper = 0;
        std::memcpy(&upper, base + 2 * index, 2);
        bits = std::uint32_t{upper} << 16U;
    } else {
        std::memcpy(&bits, base + 4 * index, 4);
    }
    return bits;
}

}  // namespace

float value_of(int contributor, std::int64_t group_element) {
    const std::uint64_t h =
        mix(mix(static_cast<std::uint64_t>(group_element)) + static_cast<std::uint64_t>(contributor + 7));
    const float mantissa = 1.0F + static_cast<float>(h % 8388608) / 8388608.0F;
    const int exponent = static_cast<int>((h >> 32U) % 12) - 6;
    return std::ldexp((h >> 40U) % 2 == 0 ? mantissa : -mantissa, exponent);
}

float expected_value(const comm::Movement& movement, std::int64_t group_element) {
    const std::uint32_t kept = movement.dtype == device::DType::bfloat16 ? 0xffff0000U : 0xffffffffU;
    const auto travelled = [&](int contributor) {
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value_of(contributor, group_element)) & kept);
    };
    if (movement.combine == comm::Combine::copy) return travelled(-1);
    float sum = movement.accumulate ? value_of(-2, group_element) : travelled(0);
    for (int c = movement.accumulate ? 0 : 1; c < movement.contributors; ++c) sum += travelled(c);
    return sum;
}

MovementData::MovementData(device::Device& device, const comm::Movement& movement, int rank, std::int64_t scratch_bytes)
    : device_(device), movement_(movement), rank_(rank), bytes_(comm::kBufferRoles, 0), images_(comm::kBufferRoles) {
    const auto index = static_cast<std::size_t>(rank);
    // A little more than needed, to see writes past the end.
    constexpr std::int64_t kSlack = 64;
    allocate(movement.from.buffer, kSlack + extent(movement.from.pieces[index]) * device::size_of(movement.dtype));
    allocate(movement.to.buffer, kSlack + extent(movement.to.pieces[index]) * 4);
    allocate(comm::BufferRole::scratch, kSlack + scratch_bytes);
    fill();
}

MovementData::~MovementData() {
    for (std::size_t role = 0; role < bytes_.size(); ++role) {
        if (bytes_[role] > 0) device_.deallocate(buffers_.base[role], bytes_[role]);
    }
}

void MovementData::allocate(comm::BufferRole role, std::int64_t bytes) {
    bytes = (bytes + 3) / 4 * 4;
    buffers_[role] = device_.allocate(bytes);
    bytes_[static_cast<std::size_t>(role)] = bytes;
    images_[static_cast<std::size_t>(role)].resize(static_cast<std::size_t>(bytes));
}

void MovementData::upload() const {
    for (std::size_t role = 0; role < bytes_.size(); ++role) {
        if (bytes_[role] == 0) continue;
        if (std::byte* const host = device_.host_address(buffers_.base[role]); host != nullptr) {
            std::memcpy(host, images_[role].data(), images_[role].size());
            continue;
        }
        const std::unique_ptr<device::Stream> stream = device_.make_stream();
        device::launch(*stream, device::CopyFromHost{device::Tensor::dense(buffers_.base[role], device::DType::int32,
                                                                           {bytes_[role] / 4}),
                                                     images_[role].data()});
        stream->synchronize();
    }
}

std::vector<std::byte> MovementData::download(comm::BufferRole role) const {
    const auto index = static_cast<std::size_t>(role);
    std::vector<std::byte> values(static_cast<std::size_t>(bytes_[index]));
    if (const std::byte* const host = device_.host_address(buffers_[role]); host != nullptr) {
        std::memcpy(values.data(), host, values.size());
        return values;
    }
    const std::unique_ptr<device::Stream> stream = device_.make_stream();
    device::launch(
        *stream, device::CopyToHost{values.data(),
                                    device::Tensor::dense(buffers_[role], device::DType::int32, {bytes_[index] / 4})});
    stream->synchronize();
    return values;
}

void MovementData::fill() {
    const auto index = static_cast<std::size_t>(rank_);
    for (std::size_t role = 0; role < bytes_.size(); ++role) {
        for (std::int64_t i = 0; i < bytes_[role] / 4; ++i) {
            store(image(static_cast<comm::BufferRole>(role)), device::DType::float32, i, kMark);
        }
    }
    const bool sums = movement_.combine == comm::Combine::sum;
    for (const comm::Piece& piece : movement_.from.pieces[index]) {
        for (std::int64_t i = 0; i < piece.count; ++i) {
            store(image(movement_.from.buffer), movement_.dtype, piece.local_offset + i,
                  value_of(sums ? rank_ : -1, piece.group_offset + i));
        }
    }
    for (const comm::Piece& piece : movement_.to.pieces[index]) {
        if (!sums || !movement_.accumulate) break;
        for (std::int64_t i = 0; i < piece.count; ++i) {
            store(image(movement_.to.buffer), device::DType::float32, piece.local_offset + i,
                  value_of(-2, piece.group_offset + i));
        }
    }
    upload();
}

std::int64_t MovementData::wrong_elements() const {
    const device::DType dtype = movement_.combine == comm::Combine::sum ? device::DType::float32 : movement_.dtype;
    const std::int64_t elements = bytes_[static_cast<std::size_t>(movement_.to.buffer)] / device::size_of(dtype);
    std::vector<std::byte> expected(static_cast<std::size_t>(elements * device::size_of(dtype)));
    for (std::size_t i = 0; i < expected.size() / 4; ++i) {
        store(expected.data(), device::DType::float32, static_cast<std::int64_t>(i), kMark);
    }
    for (const comm::Piece& piece : movement_.to.pieces[static_cast<std::size_t>(rank_)]) {
        for (std::int64_t i = 0; i < piece.count; ++i) {
            store(expected.data(), dtype, piece.local_offset + i, expected_value(movement_, piece.group_offset + i));
        }
    }
    const std::vector<std::byte> held = download(movement_.to.buffer);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < elements / 2 * 2; ++i) {
        wrong += bits_at(held.data(), dtype, i) == bits_at(expected.data(), dtype, i) ? 0 : 1;
    }
    return wrong;
}

std::int64_t MovementData::compared_elements() const {
    std::int64_t count = 0;
    for (const comm::Piece& piece : movement_.to.pieces[static_cast<std::size_t>(rank_)]) count += piece.count;
    return count;
}

}  // namespace mfsdp::test
