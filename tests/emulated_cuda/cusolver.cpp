// The part of cuSOLVER that the backend calls, by OpenBLAS's LAPACK on one thread of the stream. A call that
// `failing_call` of the settings names does not converge. Builds without LAPACK end with a message at the first call.

#include "emulated_cuda/kernel.h"
#include "emulated_cuda/runtime.h"

#include <string>
#include <vector>

#include <cusolverDn.h>

#ifdef MFSDP_WITH_LAPACK
// The Fortran interface: 32-bit integers by address, and the lengths of character arguments at the end.
extern "C" {
void openblas_set_num_threads(int threads);
void ssyevd_(const char* vectors, const char* triangle, const int* n, float* a, const int* stride, float* values,
             float* work, const int* work_size, int* integers, const int* integer_size, int* info, std::size_t,
             std::size_t);
void dsyev_(const char* vectors, const char* triangle, const int* n, double* a, const int* stride, double* values,
            double* work, const int* work_size, int* info, std::size_t, std::size_t);
void sgeqrf_(const int* rows, const int* columns, float* a, const int* stride, float* scalars, float* work,
             const int* work_size, int* info);
void sorgqr_(const int* rows, const int* columns, const int* reflectors, float* a, const int* stride,
             const float* scalars, float* work, const int* work_size, int* info);
}
#endif

namespace {

using namespace emulated_cuda;

constexpr const char* kHandle = "cusolverDnHandle_t";

/// The stream of the one handle that a process makes.
thread_local cudaStream_t stream = nullptr;

void require_vectors_of_upper(cusolverEigMode_t mode, cublasFillMode_t triangle, int n, int stride, const char* call) {
    if (mode != CUSOLVER_EIG_MODE_VECTOR || triangle != CUBLAS_FILL_MODE_UPPER || n < 1 || stride != n) {
        fail("%s: only vectors of dense matrices given by their upper triangle are emulated", call);
    }
}

void require_square(int rows, int columns, int stride, const char* call) {
    if (rows < 1 || rows != columns || stride != rows) fail("%s: only dense square matrices are emulated", call);
}

/// Checks what every solver gets and runs `body(info)` on the stream.
template <class T, class Body>
cusolverStatus_t solve(const char* call, cusolverDnHandle_t handle, int n, const T* a, const T* work, int elements,
                       int wanted, int* info, const Body& body) {
    require_object(handle, kHandle, call);
    const auto side = static_cast<std::size_t>(n);
    require_device_memory(a, side * side * sizeof(T), call);
    require_device_memory(work, static_cast<std::size_t>(elements) * sizeof(T), call);
    require_device_memory(info, sizeof(int), call);
    if (elements < wanted) fail("%s: %d elements of working memory, wanted %d", call, elements, wanted);
    const bool fails = settings().failing_call == call;
    enqueue(stream, [=] {
        *info = 0;
        if (fails) {
            *info = 1;
            return;
        }
        body();
    });
    return CUSOLVER_STATUS_SUCCESS;
}

#ifdef MFSDP_WITH_LAPACK
void require_lapack() { openblas_set_num_threads(1); }
#else
void require_lapack() { fail("cuSOLVER is emulated by LAPACK, which this build is without"); }
#endif

}  // namespace

extern "C" {

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle) {
    require_lapack();
    *handle = static_cast<cusolverDnHandle_t>(make_object(kHandle));
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
    destroy_object(handle, kHandle, "cusolverDnDestroy");
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSetDeterministicMode(cusolverDnHandle_t handle, cusolverDeterministicMode_t /*mode*/) {
    require_object(handle, kHandle, "cusolverDnSetDeterministicMode");
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t next) {
    require_object(handle, kHandle, "cusolverDnSetStream");
    stream = next;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSsyevd_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t mode,
                                             cublasFillMode_t triangle, int n, const float* /*a*/, int stride,
                                             const float* /*values*/, int* elements) {
    require_object(handle, kHandle, "cusolverDnSsyevd_bufferSize");
    require_vectors_of_upper(mode, triangle, n, stride, "cusolverDnSsyevd_bufferSize");
    *elements = 2 * n * n + 6 * n + 1 + 5 * n + 3;
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDsyevd_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t mode,
                                             cublasFillMode_t triangle, int n, const double* /*a*/, int stride,
                                             const double* /*values*/, int* elements) {
    require_object(handle, kHandle, "cusolverDnDsyevd_bufferSize");
    require_vectors_of_upper(mode, triangle, n, stride, "cusolverDnDsyevd_bufferSize");
    *elements = 34 * n;
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSgeqrf_bufferSize(cusolverDnHandle_t handle, int rows, int columns, float* /*a*/, int stride,
                                             int* elements) {
    require_object(handle, kHandle, "cusolverDnSgeqrf_bufferSize");
    require_square(rows, columns, stride, "cusolverDnSgeqrf_bufferSize");
    *elements = 64 * rows;
    return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSorgqr_bufferSize(cusolverDnHandle_t handle, int rows, int columns, int reflectors,
                                             const float* /*a*/, int stride, const float* /*scalars*/, int* elements) {
    require_object(handle, kHandle, "cusolverDnSorgqr_bufferSize");
    require_square(rows, columns, stride, "cusolverDnSorgqr_bufferSize");
    if (reflectors != rows) fail("cusolverDnSorgqr_bufferSize: only whole matrices are emulated");
    *elements = 64 * rows;
    return CUSOLVER_STATUS_SUCCESS;
}

#ifdef MFSDP_WITH_LAPACK

cusolverStatus_t cusolverDnSsyevd(cusolverDnHandle_t handle, cusolverEigMode_t mode, cublasFillMode_t triangle, int n,
                                  float* a, int stride, float* values, float* work, int elements, int* info) {
    require_vectors_of_upper(mode, triangle, n, stride, "cusolverDnSsyevd");
    const int floats = 2 * n * n + 6 * n + 1, integers = 5 * n + 3;
    return solve("cusolverDnSsyevd", handle, n, a, work, elements, floats + integers, info, [=] {
        ssyevd_("V", "U", &n, a, &n, values, work, &floats, reinterpret_cast<int*>(work + floats), &integers, info, 1,
                1);
    });
}
cusolverStatus_t cusolverDnDsyevd(cusolverDnHandle_t handle, cusolverEigMode_t mode, cublasFillMode_t triangle, int n,
                                  double* a, int stride, double* values, double* work, int elements, int* info) {
    require_vectors_of_upper(mode, triangle, n, stride, "cusolverDnDsyevd");
    return solve("cusolverDnDsyevd", handle, n, a, work, elements, 34 * n, info,
                 [=] { dsyev_("V", "U", &n, a, &n, values, work, &elements, info, 1, 1); });
}
cusolverStatus_t cusolverDnSgeqrf(cusolverDnHandle_t handle, int rows, int columns, float* a, int stride,
                                  float* scalars, float* work, int elements, int* info) {
    require_square(rows, columns, stride, "cusolverDnSgeqrf");
    return solve("cusolverDnSgeqrf", handle, rows, a, work, elements, 64 * rows, info,
                 [=] { sgeqrf_(&rows, &rows, a, &rows, scalars, work, &elements, info); });
}
cusolverStatus_t cusolverDnSorgqr(cusolverDnHandle_t handle, int rows, int columns, int reflectors, float* a,
                                  int stride, const float* scalars, float* work, int elements, int* info) {
    require_square(rows, columns, stride, "cusolverDnSorgqr");
    if (reflectors != rows) fail("cusolverDnSorgqr: only whole matrices are emulated");
    return solve("cusolverDnSorgqr", handle, rows, a, work, elements, 64 * rows, info,
                 [=] { sorgqr_(&rows, &rows, &rows, a, &rows, scalars, work, &elements, info); });
}

#else

cusolverStatus_t cusolverDnSsyevd(cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, int, float*, int, float*,
                                  float*, int, int*) {
    fail("cusolverDnSsyevd: this build is without LAPACK");
}
cusolverStatus_t cusolverDnDsyevd(cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, int, double*, int, double*,
                                  double*, int, int*) {
    fail("cusolverDnDsyevd: this build is without LAPACK");
}
cusolverStatus_t cusolverDnSgeqrf(cusolverDnHandle_t, int, int, float*, int, float*, float*, int, int*) {
    fail("cusolverDnSgeqrf: this build is without LAPACK");
}
cusolverStatus_t cusolverDnSorgqr(cusolverDnHandle_t, int, int, int, float*, int, const float*, float*, int, int*) {
    fail("cusolverDnSorgqr: this build is without LAPACK");
}

#endif

}  // extern "C"
