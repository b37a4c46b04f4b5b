#include "mfsdp/runtime/bench/timing.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/stopwatch.h"
#include "mfsdp/device/memory.h"

#include <algorithm>

namespace mfsdp::runtime {

namespace {

using device::DType;
using device::MemoryCategory;
using device::Tensor;

/// Operands of ones: the speed of products and copies does not depend on values, except on NaN and subnormal ones.
Tensor filled(device::Device& device, device::Stream& stream, device::MemoryLedger& ledger,
              std::vector<device::Buffer>& buffers, DType dtype, std::int64_t rows, std::int64_t columns) {
    buffers.emplace_back(device, ledger, MemoryCategory::workspace, rows * columns * device::size_of(dtype));
    const Tensor tensor = buffers.back().view(dtype, {rows, columns});
    device::launch(stream, device::Fill{.out = tensor, .value = 1.0});
    return tensor;
}

double product_peak(device::Device& device, DType dtype, const TimingOptions& options) {
    double best = 0.0;
    // Large enough to spend all time in the kernel, small enough to stay in the caches by panels.
    const bool cuda = device.kind() == device::DeviceKind::cuda;
    const std::vector<std::int64_t> sizes =
        cuda ? std::vector<std::int64_t>{4096, 8192} : std::vector<std::int64_t>{768, 1536, 2048};
    for (const std::int64_t size : sizes) {
        const auto stream = device.make_stream();
        device::MemoryLedger ledger;
        std::vector<device::Buffer> buffers;
        const device::Matmul product{
            .out = filled(device, *stream, ledger, buffers, cuda ? dtype : DType::float32, size, size),
            .a = filled(device, *stream, ledger, buffers, dtype, size, size),
            .b = filled(device, *stream, ledger, buffers, dtype, size, size),
            .transpose_b = true};
        const Timing timing = time_on_stream(
            *stream, [&] { device::launch(*stream, product); }, options);
        best = std::max(best, static_cast<double>(product.cost().flops) / timing.least_seconds);
    }
    return best;
}

double copy_peak(device::Device& device, const TimingOptions& options) {
    // Beyond the caches: 64 MiB, 1 GiB on a GPU.
    const std::int64_t rows = device.kind() == device::DeviceKind::cuda ? 65536 : 4096;
    constexpr std::int64_t kColumns = 4096;
    const auto stream = device.make_stream();
    device::MemoryLedger ledger;
    std::vector<device::Buffer> buffers;
    const device::Copy copy{.out = filled(device, *stream, ledger, buffers, DType::float32, rows, kColumns),
                            .in = filled(device, *stream, ledger, buffers, DType::float32, rows, kColumns)};
    const Timing timing = time_on_stream(
        *stream, [&] { device::launch(*stream, copy); }, options);
    return static_cast<double>(copy.cost().bytes) / timing.least_seconds;
}

/// How often to issue before each wait. A wait for a GPU costs as much as a small operation, and so does the start of
/// what it finds idle: there a measurement is of so many in a row that it takes two milliseconds.
int batch_for(device::Stream& stream, const std::function<void()>& issue) {
    if (stream.device().kind() != device::DeviceKind::cuda) return 1;
    constexpr double kLeastSeconds = 2e-3;
    const double begin = base::now_seconds();
    issue();
    stream.synchronize();
    return static_cast<int>(std::clamp(kLeastSeconds / (base::now_seconds() - begin), 1.0, 200.0));
}

}  // namespace

Timing timing_of(std::vector<double> seconds) {
    MFSDP_ASSERT(!seconds.empty(), "something was timed");
    std::sort(seconds.begin(), seconds.end());
    const std::size_t middle = seconds.size() / 2;
    const double median = seconds.size() % 2 == 1 ? seconds[middle] : 0.5 * (seconds[middle - 1] + seconds[middle]);
    return {median, seconds.front(), static_cast<int>(seconds.size())};
}

Timing time_on_stream(device::Stream& stream, const std::function<void()>& issue, const TimingOptions& options) {
    for (int i = 0; i < options.warmups; ++i) issue();
    stream.synchronize();
    const int batch = batch_for(stream, issue);
    std::vector<double> times;
    double total = 0.0;
    while (static_cast<int>(times.size()) < options.least_repeats ||
           (total < options.seconds && static_cast<int>(times.size()) < options.most_repeats)) {
        const double begin = base::now_seconds();
        for (int i = 0; i < batch; ++i) issue();
        stream.synchronize();
        const double seconds = base::now_seconds() - begin;
        times.push_back(seconds / batch);
        total += seconds;
    }
    return timing_of(std::move(times));
}

MachinePeak measure_peak(device::Device& device, DType dtype, const TimingOptions& options) {
    return {product_peak(device, dtype, options), copy_peak(device, options)};
}

}  // namespace mfsdp::runtime
