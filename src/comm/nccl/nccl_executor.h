#pragma once

#include "mfsdp/comm/executor.h"

namespace mfsdp::comm::nccl {

/// See CudaModule.
[[nodiscard]] Executor* make_executor(Communicator& communicator, device::Device& device,
                                      const NcclExecutorOptions& options);

}  // namespace mfsdp::comm::nccl
