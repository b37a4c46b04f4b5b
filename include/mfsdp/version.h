#pragma once

#include <string_view>

namespace mfsdp {

/// "0.1.0", from the project's CMakeLists.txt.
[[nodiscard]] std::string_view version();

}  // namespace mfsdp
