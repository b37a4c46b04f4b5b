#include "mfsdp/base/host_name.h"

#include <array>

#include <unistd.h>

namespace mfsdp::base {

std::string host_name() {
    std::array<char, 256> name{};  // a name that is cut need not end in zero: the last byte is left alone
    if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
    return name.data();
}

}  // namespace mfsdp::base
