#pragma once

#include "mfsdp/device/event.h"

namespace mfsdp::device {

class Device;

/// An ordered queue of operations on one device. Operations issued to it run in order; different streams are ordered
/// only by events.
class Stream {
  public:
    explicit Stream(Device& device) : device_(device) {}
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    virtual ~Stream() = default;

    [[nodiscard]] Device& device() const { return device_; }

    /// The point after everything issued so far.
    [[nodiscard]] virtual Event record() = 0;
    /// Later operations of this stream start after `event`. An inline stream blocks the host here.
    virtual void wait(const Event& event) = 0;
    /// Blocks the host until everything issued is done; throws what an operation threw.
    virtual void synchronize() = 0;

  private:
    Device& device_;
};

}  // namespace mfsdp::device
