#include "device/cpu/lapack.h"

#include "mfsdp/base/error.h"

#include "device/ops/decomposition_workspace.h"

#include <cstddef>

#ifdef MFSDP_WITH_LAPACK

// The Fortran interface: 32-bit integers by address, and the lengths of character arguments at the end.
extern "C" {
void openblas_set_num_threads(int threads);
char* openblas_get_config();
char* openblas_get_corename();
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

namespace mfsdp::device::cpu {

#ifdef MFSDP_WITH_LAPACK

namespace {

int to_int(std::int64_t value) {
    MFSDP_ASSERT(value >= 0 && value <= INT32_MAX, "LAPACK counts with 32 bits, sides end long before");
    return static_cast<int>(value);
}

/// `info` < 0 is a wrong argument, > 0 a result that is not there.
bool succeeded(int info) {
    MFSDP_ASSERT(info >= 0, "LAPACK was called as it is documented");
    return info == 0;
}

}  // namespace

bool has_lapack() { return true; }

std::string describe_lapack() {
    // "OpenBLAS 0.3.21 DYNAMIC_ARCH NO_AFFINITY Zen MAX_THREADS=128": what follows the version says how it was built.
    const std::string config = openblas_get_config();
    const std::size_t name_end = config.find(' ');
    return config.substr(0, config.find(' ', name_end + 1)) + " " + openblas_get_corename();
}

void hold_lapack_to_one_thread() { openblas_set_num_threads(1); }

bool eigen_decompose(std::int64_t n, float* a, float* values, float* work, int* integers) {
    const int size = to_int(n), work_size = to_int(2 * n * n + 6 * n + 1);
    const int integer_size = to_int(SolverPieces::word_count(n));
    int info = 0;
    ssyevd_("V", "U", &size, a, &size, values, work, &work_size, integers, &integer_size, &info, 1, 1);
    return succeeded(info);
}

bool eigen_decompose(std::int64_t n, double* a, double* values, double* work) {
    const int size = to_int(n), work_size = to_int(34 * n);
    int info = 0;
    dsyev_("V", "U", &size, a, &size, values, work, &work_size, &info, 1, 1);
    return succeeded(info);
}

bool orthonormalise(std::int64_t n, float* a, float* scalars, float* work) {
    const int size = to_int(n), work_size = to_int(BasisPieces::kWorkRows * n);
    int info = 0;
    sgeqrf_(&size, &size, a, &size, scalars, work, &work_size, &info);
    if (!succeeded(info)) return false;
    sorgqr_(&size, &size, &size, a, &size, scalars, work, &work_size, &info);
    return succeeded(info);
}

#else

namespace {

void require_lapack() { MFSDP_ASSERT(has_lapack(), "decompositions are asked for only where the program has LAPACK"); }

}  // namespace

bool has_lapack() { return false; }
std::string describe_lapack() { return {}; }
void hold_lapack_to_one_thread() {}

bool eigen_decompose(std::int64_t /*n*/, float* /*a*/, float* /*values*/, float* /*work*/, int* /*integers*/) {
    require_lapack();
    return false;
}
bool eigen_decompose(std::int64_t /*n*/, double* /*a*/, double* /*values*/, double* /*work*/) {
    require_lapack();
    return false;
}
bool orthonormalise(std::int64_t /*n*/, float* /*a*/, float* /*scalars*/, float* /*work*/) {
    require_lapack();
    return false;
}

#endif

}  // namespace mfsdp::device::cpu
