#pragma once

#include "mfsdp/device/ops/attention.h"

#include "device/cuda/cudnn_graph.h"

#include <compare>
#include <cstdint>

namespace mfsdp::device::cuda::cudnn {

/// Where the heads of a tensor [B, T, heads, D] lie: strides in elements; D is contiguous.
struct HeadStrides {
    std::int64_t batch = 0, position = 0, head = 0;
    auto operator<=>(const HeadStrides&) const = default;  // NOLINT(modernize-use-nullptr): there is none
};
[[nodiscard]] HeadStrides head_strides(const Tensor& tensor);

/// All that a plan for attention depends on.
struct AttentionShape {
    DType dtype = DType::bfloat16;
    std::int64_t batch = 1, positions = 1, heads = 1, key_heads = 1, head_dim = 1;
    HeadStrides query, key, value, out;
    HeadStrides grad_query, grad_key, grad_value, grad_out;   ///< of the backward only
    auto operator<=>(const AttentionShape&) const = default;  // NOLINT(modernize-use-nullptr): there is none
};

/// out and log Z from query, key and value.
struct ForwardGraph {
    Graph graph;
    TensorId query, key, value, scale, masked, out, log_sum_exp;
};
[[nodiscard]] ForwardGraph forward_graph(const AttentionShape& shape);

/// The gradients of query, key and value.
struct BackwardGraph {
    Graph graph;
    TensorId query, key, value, out, log_sum_exp, grad_out, scale, masked, grad_query, grad_key, grad_value;
};
[[nodiscard]] BackwardGraph backward_graph(const AttentionShape& shape);

}  // namespace mfsdp::device::cuda::cudnn
