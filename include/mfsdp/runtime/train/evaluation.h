#pragma once

#include "mfsdp/comm/communicator.h"
#include "mfsdp/runtime/data/validation_loader.h"
#include "mfsdp/runtime/train/engine.h"

#include <cstdint>

namespace mfsdp::runtime {

struct Evaluation {
    double loss = 0.0;  ///< nat per target: losses of micro-batches added in order, over their number of targets
    std::int64_t targets = 0;
    double seconds = 0.0;
};

/// The loss over a validation set with the present weights: the same bits on every rank and for every number of ranks,
/// also where there are fewer micro-batches than ranks. Nothing that training uses changes. All ranks call it; blocks.
/// A set of which no target counts is an AgreedFailure (exit code of data errors).
[[nodiscard]] Evaluation evaluate(Engine& engine, comm::Communicator& communicator, const ValidationLoader& loader);

}  // namespace mfsdp::runtime
