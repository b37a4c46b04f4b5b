#pragma once

#include "mfsdp/device/cpu_device.h"

#include "support/catch.h"

namespace mfsdp::test {

/// Whether a test that decomposes matrices has to be skipped; then it says so.
inline bool without_lapack() {
    if (device::cpu_has_lapack()) return false;
    WARN("skipped: this program was built without LAPACK");
    return true;
}

}  // namespace mfsdp::test
