#pragma once

#include <string>

namespace mfsdp::device::cpu {

/// ConfigError if this program was compiled for instructions that the processor lacks.
void require_compiled_instructions();

/// What decides the bits of a result: the instructions this program was compiled for and who computes its products,
/// e.g. "avx2 oneDNN 2.6.3 avx2" (version, and the instructions that the library chose for this processor).
[[nodiscard]] std::string describe_arithmetic();

}  // namespace mfsdp::device::cpu
