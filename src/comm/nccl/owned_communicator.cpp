#include "comm/nccl/owned_communicator.h"

#include "comm/nccl/error.h"

#include <utility>

namespace mfsdp::comm::nccl {

void OwnedCommunicator::meet(const ncclUniqueId& id, int ranks, int rank) {
    // Blocking: otherwise every group is issued by a thread that NCCL makes for it, at tens of microseconds each. What
    // blocks for ever is seen by the executor's watching thread.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    MFSDP_NCCL(ncclCommInitRankConfig(&communicator_, ranks, id, rank, &config));
}

std::string OwnedCommunicator::failure() const {
    if (communicator_ == nullptr) return {};
    ncclResult_t result = ncclSuccess;
    MFSDP_NCCL(ncclCommGetAsyncError(communicator_, &result));
    if (result == ncclSuccess || result == ncclInProgress) return {};
    std::string text = ncclGetErrorString(result);
    if (const char* const details = ncclGetLastError(communicator_); details != nullptr && *details != '\0') {
        text.append("; ").append(details);
    }
    return text;
}

void OwnedCommunicator::abort() noexcept {
    if (communicator_ != nullptr) MFSDP_NCCL_NOTHROW(ncclCommAbort(std::exchange(communicator_, nullptr)));
}

void OwnedCommunicator::finish() noexcept {
    if (communicator_ == nullptr) return;
    MFSDP_NCCL_NOTHROW(ncclCommFinalize(communicator_));
    MFSDP_NCCL_NOTHROW(ncclCommDestroy(std::exchange(communicator_, nullptr)));
}

}  // namespace mfsdp::comm::nccl
