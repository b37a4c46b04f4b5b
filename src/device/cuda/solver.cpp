#include "device/cuda/solver.h"

#include "mfsdp/base/error.h"

#include "device/cuda/error.h"
#include "device/cuda/scratch.h"

#include <algorithm>
#include <cstdio>
#include <string>

namespace mfsdp::device::cuda {

namespace {

void check(cusolverStatus_t status, const char* call) {
    if (status == CUSOLVER_STATUS_SUCCESS) return;
    throw DeviceError(std::string("device: ").append(call).append(" failed with cuSOLVER's status ") +
                      std::to_string(static_cast<int>(status)));
}

int to_int(std::int64_t n) {
    MFSDP_ASSERT(n <= INT32_MAX, "cuSOLVER counts with 32 bits, sides end long before");
    return static_cast<int>(n);
}

template <class T>
T* work_of(Scratch& scratch, int elements) {
    return reinterpret_cast<T*>(
        scratch.reserve(std::max<std::int64_t>(1, elements) * static_cast<std::int64_t>(sizeof(T))));
}

}  // namespace

Solver::~Solver() {
    if (handle_ != nullptr && cusolverDnDestroy(handle_) != CUSOLVER_STATUS_SUCCESS) {
        std::fputs("device: cusolverDnDestroy failed\n", stderr);
    }
}

cusolverDnHandle_t Solver::handle(cudaStream_t stream) {
    if (handle_ == nullptr) {
        check(cusolverDnCreate(&handle_), "cusolverDnCreate");
        check(cusolverDnSetDeterministicMode(
                  handle_, deterministic_ ? CUSOLVER_DETERMINISTIC_RESULTS : CUSOLVER_ALLOW_NON_DETERMINISTIC_RESULTS),
              "cusolverDnSetDeterministicMode");
    }
    check(cusolverDnSetStream(handle_, stream), "cusolverDnSetStream");
    return handle_;
}

void Solver::decompose(cudaStream_t stream, Scratch& scratch, std::int64_t n, float* a, float* values, int* info) {
    const std::lock_guard lock(mutex_);
    cusolverDnHandle_t solver = handle(stream);
    const int size = to_int(n);
    int elements = 0;
    check(cusolverDnSsyevd_bufferSize(solver, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, size, a, size, values,
                                      &elements),
          "cusolverDnSsyevd_bufferSize");
    check(cusolverDnSsyevd(solver, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, size, a, size, values,
                           work_of<float>(scratch, elements), elements, info),
          "cusolverDnSsyevd");
}

void Solver::decompose(cudaStream_t stream, Scratch& scratch, std::int64_t n, double* a, double* values, int* info) {
    const std::lock_guard lock(mutex_);
    cusolverDnHandle_t solver = handle(stream);
    const int size = to_int(n);
    int elements = 0;
    check(cusolverDnDsyevd_bufferSize(solver, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, size, a, size, values,
                                      &elements),
          "cusolverDnDsyevd_bufferSize");
    check(cusolverDnDsyevd(solver, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, size, a, size, values,
                           work_of<double>(scratch, elements), elements, info),
          "cusolverDnDsyevd");
}

void Solver::orthonormalise(cudaStream_t stream, Scratch& scratch, std::int64_t n, float* a, float* scalars,
                            int* info) {
    const std::lock_guard lock(mutex_);
    cusolverDnHandle_t solver = handle(stream);
    const int size = to_int(n);
    int for_factors = 0, for_q = 0;
    check(cusolverDnSgeqrf_bufferSize(solver, size, size, a, size, &for_factors), "cusolverDnSgeqrf_bufferSize");
    check(cusolverDnSorgqr_bufferSize(solver, size, size, size, a, size, scalars, &for_q),
          "cusolverDnSorgqr_bufferSize");
    const int elements = std::max(for_factors, for_q);
    auto* const work = work_of<float>(scratch, elements);
    check(cusolverDnSgeqrf(solver, size, size, a, size, scalars, work, elements, info), "cusolverDnSgeqrf");
    // Neither can fail but for wrong arguments; the second overwrites what the first said.
    check(cusolverDnSorgqr(solver, size, size, size, a, size, scalars, work, elements, info), "cusolverDnSorgqr");
}

}  // namespace mfsdp::device::cuda
