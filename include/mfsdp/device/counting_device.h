#pragma once

#include "mfsdp/device/device.h"

#include <cstdint>
#include <memory>

namespace mfsdp::device {

/// What the modelled machine can do; times of a rehearsal are a model, its bytes and FLOPs are exact.
struct CountingDeviceOptions {
    double flops_per_second = 1e14;
    double bytes_per_second = 1e12;
    double seconds_per_launch = 5e-6;
};

/// A device that allocates nothing and computes nothing: operations are checked and their Cost is counted; each stream
/// has a modelled clock that `wait` moves to the event's modelled time. Addresses are distinct, never null, and must
/// not be followed.
class CountingDevice : public Device {
  public:
    /// Totals over all streams since construction or the last reset.
    [[nodiscard]] virtual Cost total() const = 0;
    virtual void reset_total() = 0;
};

[[nodiscard]] std::unique_ptr<CountingDevice> make_counting_device(const CountingDeviceOptions& options);

}  // namespace mfsdp::device
