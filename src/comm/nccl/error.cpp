#include "comm/nccl/error.h"

#include "mfsdp/base/error.h"

#include <iostream>
#include <string>

namespace mfsdp::comm::nccl {

namespace {

std::string describe(ncclResult_t result, const char* call, const char* file, int line) {
    std::string text = "comm: ";
    text.append(call).append(" failed at ").append(file).append(":").append(std::to_string(line));
    text.append(": ").append(ncclGetErrorString(result));
    // NCCL keeps what it found out itself, per thread.
    if (const char* const details = ncclGetLastError(nullptr); details != nullptr && *details != '\0') {
        text.append("; ").append(details);
    }
    return text;
}

}  // namespace

void check(ncclResult_t result, const char* call, const char* file, int line) {
    if (result != ncclSuccess) throw CommunicationError(describe(result, call, file, line));
}

void report(ncclResult_t result, const char* call, const char* file, int line) noexcept {
    if (result != ncclSuccess) std::cerr << describe(result, call, file, line) << '\n';
}

}  // namespace mfsdp::comm::nccl
