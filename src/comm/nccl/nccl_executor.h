#pragma once

#include "mfsdp/comm/executor.h"

#include <memory>

namespace mfsdp::comm::nccl {

/// See CudaModule.
[[nodiscard]] std::unique_ptr<Executor> make_executor(Communicator& communicator, device::Device& device,
                                                      const NcclExecutorOptions& options);

}  // namespace mfsdp::comm::nccl
