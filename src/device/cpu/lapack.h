#pragma once

#include <cstdint>
#include <string>

namespace mfsdp::device::cpu {

// LAPACK of OpenBLAS on the calling thread alone: with several threads its sums, and so its bits, depend on how many.
// Matrices are column-major where that matters. Working memory is the caller's, so that addresses do not enter.

/// Whether this program was built with OpenBLAS.
[[nodiscard]] bool has_lapack();
/// Library, version and the kernels it chose for this processor, e.g. "OpenBLAS 0.3.21 ZEN"; empty without it.
[[nodiscard]] std::string describe_lapack();
/// Holds the library to one thread for a call. Idempotent; every device calls it at start.
void hold_lapack_to_one_thread();

/// Replaces the symmetric a [n, n] by its eigenvectors, vector j at a + j n, and gives the eigenvalues, smallest first.
/// False if the iteration did not converge. InternalError without the library.
///
/// float: divide and conquer; work [2 n^2 + 6 n + 1], integers [SolverPieces::word_count(n)]
/// double: QR iteration, slower and in place; work [34 n]
[[nodiscard]] bool eigen_decompose(std::int64_t n, float* a, float* values, float* work, int* integers);
[[nodiscard]] bool eigen_decompose(std::int64_t n, double* a, double* values, double* work);

/// Replaces a [n, n], column j at a + j n, by the factor Q of its Householder QR. work [BasisPieces::kWorkRows n],
/// scalars [n]
[[nodiscard]] bool orthonormalise(std::int64_t n, float* a, float* scalars, float* work);

}  // namespace mfsdp::device::cpu
