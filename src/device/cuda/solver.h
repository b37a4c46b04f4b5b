#pragma once

#include <cstdint>
#include <mutex>

#include <cuda_runtime.h>
#include <cusolverDn.h>

namespace mfsdp::device::cuda {

class Scratch;

/// The dense solvers of cuSOLVER, for matrices that are column-major where that matters. What became of a call is an
/// int on the device, 0 if it succeeded. Working memory is the stream's scratch.
class Solver {
  public:
    explicit Solver(bool deterministic) : deterministic_(deterministic) {}
    Solver(const Solver&) = delete;
    Solver& operator=(const Solver&) = delete;
    ~Solver();

    /// Replaces the symmetric a [n, n] by its eigenvectors, vector j at a + j n, and gives the eigenvalues, smallest
    /// first. May block the host.
    void decompose(cudaStream_t stream, Scratch& scratch, std::int64_t n, float* a, float* values, int* info);
    void decompose(cudaStream_t stream, Scratch& scratch, std::int64_t n, double* a, double* values, int* info);

    /// Replaces a [n, n], column j at a + j n, by the factor Q of its Householder QR. scalars [n]
    void orthonormalise(cudaStream_t stream, Scratch& scratch, std::int64_t n, float* a, float* scalars, int* info);

  private:
    /// The library's handle for the stream; made at the first call, because few runs decompose anything.
    [[nodiscard]] cusolverDnHandle_t handle(cudaStream_t stream);

    bool deterministic_;
    std::mutex mutex_;
    cusolverDnHandle_t handle_ = nullptr;
};

}  // namespace mfsdp::device::cuda
