#pragma once

// Host values on a device and back, for tests of single operations.

#include "mfsdp/device/memory.h"
#include "mfsdp/device/stream.h"

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace mfsdp::device::test {

[[nodiscard]] inline std::vector<float> random_values(std::int64_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<float> values;
    values.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        values.push_back(static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0));  // [-1, 1)
    }
    return values;
}

/// A device with one stream and a ledger; tensors made from host values live as long as it does.
class Bench {
  public:
    explicit Bench(std::unique_ptr<Device> device) : device_(std::move(device)), stream_(device_->make_stream()) {}

    [[nodiscard]] Device& device() { return *device_; }
    [[nodiscard]] Stream& stream() { return *stream_; }
    [[nodiscard]] MemoryLedger& ledger() { return ledger_; }

    /// New memory for `count` elements whose address is `offset` elements behind a multiple of 256 bytes.
    [[nodiscard]] Tensor reserve(DType dtype, std::int64_t count, std::int64_t offset = 0) {
        buffers_.emplace_back(*device_, ledger_, MemoryCategory::workspace, (count + offset) * size_of(dtype) + 1);
        return buffers_.back().view(dtype, {count}, offset * size_of(dtype));
    }

    template <class T>
    [[nodiscard]] Tensor send(DType dtype, const std::vector<T>& values, std::int64_t offset = 0) {
        const Tensor tensor = reserve(dtype, static_cast<std::int64_t>(values.size()), offset);
        launch(*stream_, CopyFromHost{tensor, values.data()});
        stream_->synchronize();
        return tensor;
    }
    [[nodiscard]] Tensor send(const std::vector<float>& values, std::int64_t offset = 0) {
        return send(DType::float32, values, offset);
    }

    template <class T = float>
    [[nodiscard]] std::vector<T> fetch(const Tensor& tensor) {
        std::vector<T> values(static_cast<std::size_t>(tensor.count()));
        launch(*stream_, CopyToHost{values.data(), tensor});
        stream_->synchronize();
        return values;
    }

  private:
    std::unique_ptr<Device> device_;
    MemoryLedger ledger_;
    std::vector<Buffer> buffers_;
    std::unique_ptr<Stream> stream_;
};

/// Equality of bits: a NaN equals itself, and -0 is not 0.
template <class T>
[[nodiscard]] bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && !a.empty() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace mfsdp::device::test
