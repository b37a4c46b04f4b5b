#pragma once

#include "mfsdp/model/transformer.h"

#include <span>

namespace mfsdp::model {

/// InternalError unless a micro-batch has what its purpose reads and writes, within the sizes of `options`.
void check_micro_batch(const ModelSpec& spec, const TransformerOptions& options, Purpose purpose,
                       const MicroBatch& micro_batch);

/// InternalError unless the caller brought the tensors of a visit: what it reads, and of what it writes those that are
/// not frozen, in the shapes and types that Transformer::run asks for.
void check_tensors(const ModelSpec& spec, const TransformerOptions& options, const UnitVisit& visit,
                   std::span<const device::Tensor> weights, std::span<const device::Tensor> gradients);

}  // namespace mfsdp::model
