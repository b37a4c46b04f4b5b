#include "mfsdp/device/ops/symmetric.h"

#include "device/cuda/kernels.h"
#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

namespace {

__global__ void __launch_bounds__(kThreads) fill_identity_kernel(View<float> out, RowExtent<float> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            Floats<decltype(at)::kLanes> row;
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) row.lane[i] = at.column + i == at.row ? 1.0F : 0.0F;
            return row;
        },
        [=](auto at, const auto& row) { store(out, at, row); });
}

}  // namespace

void run(const Context& context, const FillIdentity& operation) {
    const std::int64_t size = operation.out.rows();
    const auto extent = extent_of_rows<RowExtent<float>>(size, size, {operation.out});
    launch_kernel(fill_identity_kernel, extent.grid(), context.stream, rows_of<float>(operation.out, size), extent);
}

}  // namespace mfsdp::device::cuda
