#include "mfsdp/version.h"

namespace mfsdp {

std::string_view version() { return MFSDP_VERSION; }

}  // namespace mfsdp
