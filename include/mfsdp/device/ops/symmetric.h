#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <string_view>

namespace mfsdp::device {

/// out [n, n] = the identity. float32, dense.
struct FillIdentity {
    static constexpr std::string_view kName = "fill_identity";
    Tensor out;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
