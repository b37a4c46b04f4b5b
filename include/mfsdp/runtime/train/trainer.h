#pragma once

#include "mfsdp/comm/communicator.h"
#include "mfsdp/runtime/config/train_config.h"
#include "mfsdp/runtime/train/machine.h"

namespace mfsdp::runtime {

/// Trains as the configuration says, on the ranks of the communicator: plan, rehearsal, engine, loop, export. Every
/// rank calls it with the same configuration.
void train(const TrainConfig& config, comm::Communicator& communicator, const MachineOptions& options);

}  // namespace mfsdp::runtime
