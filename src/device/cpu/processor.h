#pragma once

#include "mfsdp/device/cpu_device.h"

#include "device/cpu/product.h"

#include <string>

namespace mfsdp::device::cpu {

/// ConfigError if this program was compiled for instructions that the processor lacks.
void require_compiled_instructions();

/// `automatic` made definite for this program and processor; ConfigError if oneDNN is wanted and missing.
[[nodiscard]] ProductKernel choose_products(ProductKernel wanted);

/// The products of each type by a definite kernel. Where oneDNN is wanted, float16 is still multiplied by our own
/// kernel, and bfloat16 too unless the processor has instructions for it that the library uses.
[[nodiscard]] LibraryProducts products_by(ProductKernel kernel);

/// What decides the bits of a result: the instructions this program was compiled for, who computes its products and who
/// decomposes matrices, e.g. "avx2 own products, OpenBLAS 0.3.21 Zen" or "avx2 oneDNN 2.6.3 avx512_core" (version, and
/// the instructions the library uses here), with " and bfloat16" where that too is multiplied by oneDNN.
[[nodiscard]] std::string describe_arithmetic(ProductKernel products);

}  // namespace mfsdp::device::cpu
