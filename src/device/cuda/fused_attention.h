#pragma once

#include "device/cuda/kernels.h"

#include <memory>
#include <string>

namespace mfsdp::device::cuda {

/// Attention by a library that knows the GPU better than our own kernels. Which shapes it takes does not depend on
/// anything but types and shapes. Forward and backward are decided each by itself: log Z means the same in all.
class FusedAttention {
  public:
    FusedAttention() = default;
    FusedAttention(const FusedAttention&) = delete;
    FusedAttention& operator=(const FusedAttention&) = delete;
    virtual ~FusedAttention() = default;

    /// False, and nothing is issued, if the library does not take this shape.
    [[nodiscard]] virtual bool forward(const Context& context, const AttentionForward& operation) = 0;
    [[nodiscard]] virtual bool backward(const Context& context, const AttentionBackward& operation) = 0;
    /// Notes that this shape is computed by our own kernels, and why.
    virtual void forgo(const AttentionForward& operation, const char* reason) = 0;
    /// "cuDNN 9.19.0".
    [[nodiscard]] virtual std::string description() const = 0;
    /// See Device::remarks: what was declined so far.
    [[nodiscard]] virtual std::string remarks() const = 0;
};

/// src/device/cuda/cudnn_attention.cpp: only in builds with cuDNN, and not part of the emulated module.
[[nodiscard]] std::unique_ptr<FusedAttention> make_cudnn_attention(bool deterministic);

}  // namespace mfsdp::device::cuda
