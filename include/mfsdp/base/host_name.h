#pragma once

#include <string>

namespace mfsdp::base {

/// What this machine calls itself, at most 255 bytes; "unknown" where it does not say.
[[nodiscard]] std::string host_name();

}  // namespace mfsdp::base
