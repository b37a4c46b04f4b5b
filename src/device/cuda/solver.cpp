#include "device/cuda/solver.h"

#include "mfsdp/base/error.h"

#include "device/cuda/error.h"
#include "device/cuda/scratch.h"

#include <algorithm>

namespace mfsdp::device::cuda {

namespace {

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
    if (handle_ != nullptr) MFSDP_CUDA_NOTHROW(cusolverDnDestroy(handle_));
}

cusolverDnHandle_t Solver::handle(cudaStream_t stream) {
    if (handle_ == nullptr) {
        MFSDP_CUDA(cusolverDnCreate(&handle_));
        MFSDP_CUDA(cusolverDnSetDeterministicMode(
            handle_, deterministic_ ? CUSOLVER_DETERMINISTIC_RESULTS : CUSOLVER_ALLOW_NON_DETERMINISTIC_RESULTS));
    }
    MFSDP_CUDA(cusolverDnSetStream(handle_, stream));
    return handle_;
}

void Solver::decompose(cudaStream_t stream, Scratch& scratch, std::int64_t n, float* a, float* values, int* info) {
    const std::lock_guard lock(mutex_);
    cusolverDnHandle_t solver = handle(stream);
    const int size = to_int(n);
    int elements = 0;
    MFSDP_CUDA(cusolverDnSsyevd_bufferSize(solver, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, size, a, size,
                                           values, &elements));
    MFSDP_CUDA(cusolverDnSsyevd(solver, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, size, a, size, values,
                                work_of<float>(scratch, elements), elements, info));
}

void Solver::decompose(cudaStream_t stream, Scratch& scratch, std::int64_t n, double* a, double* values, int* info) {
    const std::lock_guard lock(mutex_);
    cusolverDnHandle_t solver = handle(stream);
    const int size = to_int(n);
    int elements = 0;
    MFSDP_CUDA(cusolverDnDsyevd_bufferSize(solver, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, size, a, size,
                                           values, &elements));
    MFSDP_CUDA(cusolverDnDsyevd(solver, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, size, a, size, values,
                                work_of<double>(scratch, elements), elements, info));
}

void Solver::orthonormalise(cudaStream_t stream, Scratch& scratch, std::int64_t n, float* a, float* scalars,
                            int* info) {
    const std::lock_guard lock(mutex_);
    cusolverDnHandle_t solver = handle(stream);
    const int size = to_int(n);
    int for_factors = 0, for_q = 0;
    MFSDP_CUDA(cusolverDnSgeqrf_bufferSize(solver, size, size, a, size, &for_factors));
    MFSDP_CUDA(cusolverDnSorgqr_bufferSize(solver, size, size, size, a, size, scalars, &for_q));
    const int elements = std::max(for_factors, for_q);
    auto* const work = work_of<float>(scratch, elements);
    MFSDP_CUDA(cusolverDnSgeqrf(solver, size, size, a, size, scalars, work, elements, info));
    // Neither can fail but for wrong arguments; the second overwrites what the first said.
    MFSDP_CUDA(cusolverDnSorgqr(solver, size, size, size, a, size, scalars, work, elements, info));
}

}  // namespace mfsdp::device::cuda
