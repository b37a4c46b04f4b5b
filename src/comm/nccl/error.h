#pragma once

#include <nccl.h>

namespace mfsdp::comm::nccl {

/// Throws CommunicationError with the call, its place and NCCL's text unless the call succeeded.
void check(ncclResult_t result, const char* call, const char* file, int line);
/// For destructors: the same sentence on stderr.
void report(ncclResult_t result, const char* call, const char* file, int line) noexcept;

}  // namespace mfsdp::comm::nccl

/// `MFSDP_NCCL(ncclGroupStart())`: throws CommunicationError if the call fails.
#define MFSDP_NCCL(call) ::mfsdp::comm::nccl::check((call), #call, __FILE__, __LINE__)
/// The same for destructors: reports on stderr and goes on.
#define MFSDP_NCCL_NOTHROW(call) ::mfsdp::comm::nccl::report((call), #call, __FILE__, __LINE__)
