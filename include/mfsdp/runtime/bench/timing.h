#pragma once

#include "mfsdp/device/device.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace mfsdp::runtime {

struct TimingOptions {
    int warmups = 1;
    int least_repeats = 5;
    int most_repeats = 100;
    double seconds = 0.3;  ///< repeats go on for so long, within the two limits above
};

struct Timing {
    double median_seconds = 0.0;
    double least_seconds = 0.0;
    int repeats = 0;
};

/// Median and minimum of the given times; at least one.
[[nodiscard]] Timing timing_of(std::vector<double> seconds);

/// Times `issue`, which puts work on the stream, each repeat up to the end of that work.
[[nodiscard]] Timing time_on_stream(device::Stream& stream, const std::function<void()>& issue,
                                    const TimingOptions& options);

/// What a rank's device reaches at best: the scale of every "share of peak".
struct MachinePeak {
    double flops_per_second = 0.0;  ///< of the best of some large products
    double bytes_per_second = 0.0;  ///< read and written by a large copy
};

/// Measured, not looked up. `dtype` is that of the products' operands.
[[nodiscard]] MachinePeak measure_peak(device::Device& device, device::DType dtype, const TimingOptions& options);

}  // namespace mfsdp::runtime
