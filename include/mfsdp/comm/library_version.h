#pragma once

#include <string>

namespace mfsdp::comm {

/// "Open MPI v4.1.4"; empty in programs built without MPI.
[[nodiscard]] std::string library_version();

}  // namespace mfsdp::comm
