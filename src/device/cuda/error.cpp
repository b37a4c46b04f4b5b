#include "device/cuda/error.h"

#include "mfsdp/base/error.h"

#include <exception>
#include <iostream>
#include <string>

namespace mfsdp::device::cuda {

namespace {

std::string sentence(const char* call, const char* file, int line, const char* text, const char* name) {
    return std::string("cuda: ") + call + " failed: " + text + " (" + name + ", " + file + ":" + std::to_string(line) +
           ")";
}

template <class Status>
void report_any(Status status, const char* call, const char* file, int line) noexcept {
    try {
        check(status, call, file, line);
    } catch (const std::exception& failure) {
        std::cerr << failure.what() << '\n';
    }
}

}  // namespace

void check(cudaError_t status, const char* call, const char* file, int line) {
    if (status == cudaSuccess) return;
    const std::string message = sentence(call, file, line, cudaGetErrorString(status), cudaGetErrorName(status));
    if (status == cudaErrorMemoryAllocation) throw OutOfMemoryError(message);
    throw DeviceError(message);
}

void check(cublasStatus_t status, const char* call, const char* file, int line) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw DeviceError(sentence(call, file, line, cublasLtGetStatusString(status), cublasLtGetStatusName(status)));
}

void check(cusolverStatus_t status, const char* call, const char* file, int line) {
    if (status == CUSOLVER_STATUS_SUCCESS) return;
    const std::string number = std::to_string(static_cast<int>(status));
    throw DeviceError(sentence(call, file, line, "cuSOLVER gives no reason", ("status " + number).c_str()));
}

void report(cudaError_t status, const char* call, const char* file, int line) noexcept {
    report_any(status, call, file, line);
}

void report(cublasStatus_t status, const char* call, const char* file, int line) noexcept {
    report_any(status, call, file, line);
}

void report(cusolverStatus_t status, const char* call, const char* file, int line) noexcept {
    report_any(status, call, file, line);
}

}  // namespace mfsdp::device::cuda
