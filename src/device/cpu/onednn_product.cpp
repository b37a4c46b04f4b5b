#include "mfsdp/base/error.h"

#include "device/cpu/product.h"

#include <string>

#ifdef MFSDP_WITH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

namespace mfsdp::device::cpu {

#ifdef MFSDP_WITH_ONEDNN

static_assert(DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP || DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_SEQ,
              "this oneDNN has threads of its own that cannot be held back; configure with -DMFSDP_WITH_ONEDNN=OFF");

bool has_onednn() { return true; }

void multiply_by_onednn(const Product& product) {
    const auto letter = [](const MatrixOperand& operand) { return operand.transposed ? 'T' : 'N'; };
    const dnnl_status_t status = dnnl_sgemm(
        letter(product.a), letter(product.b), product.rows, product.columns, product.inner, product.alpha,
        product.a.data, product.a.stride, product.b.data, product.b.stride, product.beta, product.c, product.c_stride);
    if (status == dnnl_success) return;
    throw DeviceError("device: oneDNN refused a product of [" + std::to_string(product.rows) + ", " +
                      std::to_string(product.inner) + "] and [" + std::to_string(product.inner) + ", " +
                      std::to_string(product.columns) + "] with status " + std::to_string(status) + ".");
}

#else

bool has_onednn() { return false; }

void multiply_by_onednn(const Product& /*product*/) {
    MFSDP_ASSERT(has_onednn(), "the device offers oneDNN's products only where this program has them");
}

#endif

}  // namespace mfsdp::device::cpu
