#include "device/cpu/product.h"

#include "mfsdp/base/error.h"

#include <string>

#ifdef MFSDP_WITH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

namespace mfsdp::device::cpu {

#ifdef MFSDP_WITH_ONEDNN

static_assert(DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP || DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_SEQ,
              "this oneDNN has threads of its own that cannot be held back; configure with -DMFSDP_WITH_ONEDNN=OFF");

void multiply(const Product& product) {
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

void multiply(const Product& product) { multiply_plainly(product); }

#endif

}  // namespace mfsdp::device::cpu
