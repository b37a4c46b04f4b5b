#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cusolverDn.h>

namespace mfsdp::device::cuda {

/// Throws DeviceError with the call, its place and the library's text unless the status is success; memory that ran
/// out is an OutOfMemoryError.
void check(cudaError_t status, const char* call, const char* file, int line);
void check(cublasStatus_t status, const char* call, const char* file, int line);
/// cuSOLVER has no texts: its number stands for one.
void check(cusolverStatus_t status, const char* call, const char* file, int line);
/// For destructors: the same sentence on stderr.
void report(cudaError_t status, const char* call, const char* file, int line) noexcept;
void report(cublasStatus_t status, const char* call, const char* file, int line) noexcept;
void report(cusolverStatus_t status, const char* call, const char* file, int line) noexcept;

}  // namespace mfsdp::device::cuda

/// `MFSDP_CUDA(cudaMalloc(&address, bytes))`: throws DeviceError if the call fails; any library with a `check` above.
#define MFSDP_CUDA(call) ::mfsdp::device::cuda::check((call), #call, __FILE__, __LINE__)
/// The same for destructors: reports on stderr and goes on.
#define MFSDP_CUDA_NOTHROW(call) ::mfsdp::device::cuda::report((call), #call, __FILE__, __LINE__)
