#include "mfsdp/device/ops/qk_clip.h"

#include "device/cpu/kernels.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::device::cpu {

namespace {

/// The factor of a group's rows, 1 where its logits are small enough.
float clip_factor(const QkClip& operation, const float* logits, std::int64_t group) {
    const std::int64_t queries = operation.logits.count() / operation.key_heads;
    const float* const first = logits + group * queries;
    const auto largest = static_cast<double>(*std::max_element(first, first + queries));
    if (!(largest > operation.threshold)) return 1.0F;
    return static_cast<float>(std::pow(operation.threshold / largest, operation.exponent));
}

}  // namespace

void run(const Context& context, const QkClip& operation) {
    float* const weight = context.data<float>(operation.weight);
    const float* const logits = context.data<const float>(operation.logits);
    const bool matrix = operation.weight.rank == 2;
    const std::int64_t columns = matrix ? operation.weight.columns() : 1;
    const std::int64_t stride = matrix ? operation.weight.strides[0] : 1;
    const std::int64_t begin = operation.row_begin, end = begin + operation.weight.shape[0];
    context.threads.parallel_for(operation.key_heads, [&](std::int64_t group) {
        const std::int64_t first = std::max(begin, group * operation.rows_in_group);
        const std::int64_t last = std::min(end, (group + 1) * operation.rows_in_group);
        if (first >= last) return;
        const float factor = clip_factor(operation, logits, group);
        if (factor == 1.0F) return;
        for (std::int64_t row = first - begin; row < last - begin; ++row) {
            for (std::int64_t column = 0; column < columns; ++column) weight[row * stride + column] *= factor;
        }
    });
}

}  // namespace mfsdp::device::cpu
