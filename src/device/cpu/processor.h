#pragma once

#include "mfsdp/device/cpu_device.h"

#include <string>

namespace mfsdp::device::cpu {

/// ConfigError if this program was compiled for instructions that the processor lacks.
void require_compiled_instructions();

/// `automatic` made definite for this program and processor; ConfigError if oneDNN is wanted and missing.
[[nodiscard]] ProductKernel choose_products(ProductKernel wanted);

/// What decides the bits of a result: the instructions this program was compiled for and who computes its products,
/// e.g. "avx2 own products" or "avx2 oneDNN 2.6.3 avx512_core" (version, and the instructions the library uses here).
[[nodiscard]] std::string describe_arithmetic(ProductKernel products);

}  // namespace mfsdp::device::cpu
