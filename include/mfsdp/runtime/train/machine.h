#pragma once

#include "mfsdp/comm/communicator.h"
#include "mfsdp/comm/executor.h"
#include "mfsdp/device/device.h"
#include "mfsdp/runtime/config/train_config.h"

#include <memory>
#include <string>

namespace mfsdp::runtime {

/// What a program knows of the machine beyond its configuration.
struct MachineOptions {
    std::string cuda_module;  ///< library of the CUDA backend; empty: the one beside the program
};

/// What a rank computes on and what carries its transfers; the kind is the same on all ranks.
struct Machine {
    device::DeviceKind kind = device::DeviceKind::cpu;
    int ordinal = 0;  ///< which of the GPUs that this process sees
    std::string cuda_module;
    std::string notice;  ///< worth a log line: why a machine with NVIDIA's driver computes on the CPU
};

/// What `device` and `parallel.transport` mean on these ranks: with `auto` GPUs if every rank sees one, the CPU if none
/// does. On several ranks GPUs move their tensors by NCCL, CPUs by MPI. Every rank calls it; blocks. ConfigError, the
/// same on all ranks, if GPUs are missing on some rank, or a node has more ranks than GPUs.
[[nodiscard]] Machine choose_machine(const TrainConfig& config, comm::Communicator& communicator,
                                     const MachineOptions& options);

/// What `device` was decided to be: plans depend on it.
[[nodiscard]] DeviceChoice choice_of(const Machine& machine);

/// The device of this rank. `threads` is for the CPU.
[[nodiscard]] std::unique_ptr<device::Device> make_device(const Machine& machine, const TrainConfig& config,
                                                          int threads);

/// Transfers between the ranks, alone on one. On GPUs all ranks call it together, and it blocks.
[[nodiscard]] std::unique_ptr<comm::Executor> make_executor(const Machine& machine, const TrainConfig& config,
                                                            comm::Communicator& communicator, device::Device& device);

}  // namespace mfsdp::runtime
