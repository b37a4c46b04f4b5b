#pragma once

#include "mfsdp/comm/executor.h"
#include "mfsdp/comm/transfer_schedule.h"

namespace mfsdp::comm {

/// Device address of an operation's place; InternalError if its buffer is not bound.
[[nodiscard]] std::byte* address_of(const TransferBuffers& buffers, BufferRole role, std::int64_t offset,
                                    device::DType dtype);

/// Performs a copy or an add in host memory: same type, or bfloat16 widened to float32; sums are float32.
/// target and source are the host addresses of the first element.
void perform_on_host(const TransferOperation& operation, std::byte* target, const std::byte* source);

}  // namespace mfsdp::comm
