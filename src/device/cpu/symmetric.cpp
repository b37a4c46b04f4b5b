#include "mfsdp/device/ops/symmetric.h"

#include "device/cpu/kernels.h"
#include "device/cpu/pieces.h"

#include <algorithm>

namespace mfsdp::device::cpu {

void run(const Context& context, const FillIdentity& operation) {
    float* const out = context.data<float>(operation.out);
    const std::int64_t size = operation.out.rows();
    for_row_pieces(context.threads, size, size, [=](std::int64_t row, std::int64_t begin, std::int64_t count) {
        std::fill_n(out + row * size + begin, count, 0.0F);
        if (row >= begin && row < begin + count) out[row * size + row] = 1.0F;
    });
}

}  // namespace mfsdp::device::cpu
