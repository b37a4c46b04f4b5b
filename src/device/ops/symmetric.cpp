#include "mfsdp/device/ops/symmetric.h"

#include "device/ops/require.h"

namespace mfsdp::device {

void FillIdentity::check() const {
    require_shape({kName, "out", out}, DType::float32, {out.rows(), out.rows()});
    require_dense({kName, "out", out});
}
Cost FillIdentity::cost() const { return {0, out.bytes()}; }

}  // namespace mfsdp::device
