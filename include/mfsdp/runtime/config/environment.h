#pragma once

#include "mfsdp/runtime/config/train_config.h"

#include <cstdint>

namespace mfsdp::runtime {

/// Whether a launcher (mpirun, or srun with PMIx) started this process as one of several ranks.
[[nodiscard]] bool started_by_launcher();

/// Whether the launcher says that it started one rank only: a program without MPI can run under it then.
[[nodiscard]] bool launched_alone();

/// Tasks that Slurm started, this process among them, where no mpirun says how many ranks there are; 0 if not known.
[[nodiscard]] std::int64_t slurm_tasks();

/// Asks Open MPI to give the core away while it waits: ranks may outnumber cores, where its spinning costs a factor of
/// a hundred. Before MPI starts and before there are threads; an own setting of OMPI_MCA_mpi_yield_when_idle stays.
void let_mpi_yield_when_idle();

/// Compute threads of a rank: `threads` if set, else OMP_NUM_THREADS if set (of a list the first number), else cores /
/// ranks on the node, at least 1. ConfigError if OMP_NUM_THREADS does not begin with a positive number.
[[nodiscard]] int resolve_threads(const TrainConfig& config, std::int64_t ranks_on_node);

/// `telemetry.log_level`, or MFSDP_LOG_LEVEL where it is set: for a closer look without another configuration.
/// ConfigError if that is no level.
[[nodiscard]] LogLevel resolve_log_level(const TrainConfig& config);

}  // namespace mfsdp::runtime
