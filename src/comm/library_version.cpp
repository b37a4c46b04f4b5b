#include "mfsdp/comm/library_version.h"

#ifdef MFSDP_WITH_MPI
#include <array>

#include <mpi.h>
#endif

namespace mfsdp::comm {

std::string library_version() {
#ifdef MFSDP_WITH_MPI
    // May be asked before MPI_Init; libraries add builders, dates and identifiers behind the first comma.
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string version(text.data(), static_cast<std::size_t>(length));
    return version.substr(0, version.find_first_of(",\n"));
#else
    return {};
#endif
}

}  // namespace mfsdp::comm
