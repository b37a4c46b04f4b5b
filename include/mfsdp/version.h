#pragma once

#include <string_view>

namespace mfsdp {

/// "0.1.0", from the project's CMakeLists.txt.
[[nodiscard]] std::string_view version();

/// "5c0cd26a1b2c", with a "+" if files had been changed since; "unknown" outside of a git checkout. For programs only:
/// it is not in the layers' libraries, which would have to be linked anew with every commit.
[[nodiscard]] std::string_view git_revision();

}  // namespace mfsdp
