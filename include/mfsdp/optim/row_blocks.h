#pragma once

#include "mfsdp/model/parameter_spec.h"

#include <vector>

namespace mfsdp::optim {

struct RowBlockOptions {
    bool split_qkv = true;     ///< the blocks of fused q, k, v as matrices of their own
    bool split_heads = false;  ///< and further each head of q, k and v; needs split_qkv
};

/// The row blocks of a matrix of the model that are matrices of their own to the optimizer, tiling its rows; empty: the
/// whole is one. A head is called by its number, behind the block's name where the tensor is fused: "3", "q.3".
[[nodiscard]] std::vector<model::RowBlock> optimizer_blocks(const model::ModelConfig& config,
                                                            const model::ParameterSpec& parameter,
                                                            const RowBlockOptions& options);

}  // namespace mfsdp::optim
