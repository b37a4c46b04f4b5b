#pragma once

#include <string>

namespace mfsdp::device {

/// "oneDNN 2.6.0"; empty in programs built without a library for products.
[[nodiscard]] std::string library_version();

}  // namespace mfsdp::device
