#include "mfsdp/device/library_version.h"

#ifdef MFSDP_WITH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

namespace mfsdp::device {

std::string library_version() {
#ifdef MFSDP_WITH_ONEDNN
    const dnnl_version_t* const version = dnnl_version();
    return "oneDNN " + std::to_string(version->major) + '.' + std::to_string(version->minor) + '.' +
           std::to_string(version->patch);
#else
    return {};
#endif
}

}  // namespace mfsdp::device
