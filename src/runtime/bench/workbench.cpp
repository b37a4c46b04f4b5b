#include "mfsdp/runtime/bench/operations.h"

#include <utility>

namespace mfsdp::runtime {

device::Tensor Workbench::tensor(device::DType dtype, std::initializer_list<std::int64_t> shape) {
    const std::int64_t count = device::Tensor::dense(nullptr, dtype, shape).count();
    buffers_.emplace_back(device_, ledger_, device::MemoryCategory::workspace, count * device::size_of(dtype));
    const device::Tensor result = buffers_.back().view(dtype, shape);
    const device::Tensor flat = buffers_.back().view(dtype, {count});
    if (dtype == device::DType::float32) {
        device::launch(*stream_, device::FillNormal{.out = flat, .key = buffers_.size(), .standard_deviation = 0.02});
    } else if (device::size_of(dtype) == 2) {
        // Bits of numbers around 0.01 in bfloat16, far from subnormal in float16.
        std::vector<std::uint16_t> bits(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < bits.size(); ++i) {
            bits[i] = static_cast<std::uint16_t>(0x3C00U + (i * 37U) % 128U + (i % 2U) * 0x8000U);
        }
        device::launch(*stream_, device::CopyFromHost{.out = flat, .source = bits.data()});
        stream_->synchronize();
    } else {
        device::launch(*stream_, device::Fill{.out = flat, .value = 0.0});
    }
    return result;
}

device::Tensor Workbench::ids(std::int64_t count, std::int64_t limit) {
    constexpr std::int64_t kStride = 7919;  // a prime, so that neighbours lie far apart
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
        values[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * kStride % limit);
    }
    const device::Tensor result = tensor(device::DType::int32, {count});
    device::launch(*stream_, device::CopyFromHost{.out = result, .source = values.data()});
    stream_->synchronize();
    return result;
}

OperationFigures measure(const OperationCase& operation, device::Device& device, const TimingOptions& options) {
    Workbench bench(device);
    const PreparedOperation prepared = operation.prepare(bench);
    return {time_on_stream(bench.stream(), prepared.issue, options), prepared.cost};
}

}  // namespace mfsdp::runtime
