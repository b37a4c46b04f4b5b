#pragma once

#include "mfsdp/device/ops/optimizer.h"

#include "device/cuda/launch.h"

namespace mfsdp::device::cuda {

[[nodiscard]] __device__ inline float scaled(float gradient, const GradientScale& scale) {
    return gradient * scale.inverse_targets * scale.clip;
}

}  // namespace mfsdp::device::cuda
