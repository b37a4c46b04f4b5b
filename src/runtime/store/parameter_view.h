#pragma once

#include "mfsdp/device/tensor.h"
#include "mfsdp/model/parameter_spec.h"

#include <cstdint>

namespace mfsdp::runtime {

inline constexpr std::int64_t kFloatBytes = 4;  ///< masters and accumulators are float32

/// `flat` [rows x columns] as `rows` rows of a parameter: [rows, columns], or [n] for a vector, which is never cut.
[[nodiscard]] inline device::Tensor as_parameter(const model::ParameterSpec& spec, const device::Tensor& flat,
                                                 std::int64_t rows) {
    return spec.shape.size() < 2 ? flat : flat.reshape({rows, spec.columns()});
}

/// `rows` rows of a parameter at an address; nullptr gives an undefined tensor of the right shape.
[[nodiscard]] inline device::Tensor as_parameter(const model::ParameterSpec& spec, std::byte* address,
                                                 device::DType dtype, std::int64_t rows) {
    return as_parameter(spec, device::Tensor::dense(address, dtype, {rows * spec.columns()}), rows);
}

}  // namespace mfsdp::runtime
