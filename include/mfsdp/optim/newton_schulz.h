#pragma once

#include "mfsdp/device/buffer_pool.h"
#include "mfsdp/device/dtype.h"
#include "mfsdp/device/stream.h"
#include "mfsdp/device/tensor.h"

#include <array>
#include <cstdint>

namespace mfsdp::optim {

/// Coefficient tables of docs/optimizers.md, Newton-Schulz, by their names in configuration.
enum class CoefficientType : std::uint8_t { quintic /* you5 */, simple /* keller5 */, polar_express, dsv4 };
/// automatic: the Gram variant where it is cheaper, l >= 1.5 s and the iterates are float16.
enum class NewtonSchulzMethod : std::uint8_t { automatic, standard, gram };

struct NewtonSchulzOptions {
    CoefficientType coefficient_type = CoefficientType::quintic;
    std::int64_t steps = 5;
    device::DType dtype = device::DType::float32;  ///< of the iterates: float32, bfloat16 or float16
    NewtonSchulzMethod method = NewtonSchulzMethod::automatic;
};

/// Row (a, b, c) of Newton-Schulz step `index`: beyond the table its last row repeats.
[[nodiscard]] std::array<double, 3> newton_schulz_coefficients(CoefficientType type, std::int64_t index);

/// Whether matrices of this shape take the Gram variant.
[[nodiscard]] bool uses_gram(const NewtonSchulzOptions& options, std::int64_t rows, std::int64_t columns);
/// FLOPs for one matrix, symmetric products counted with one triangle (docs/optimizers.md, cost).
[[nodiscard]] std::int64_t newton_schulz_flops(const NewtonSchulzOptions& options, std::int64_t rows,
                                               std::int64_t columns);

/// Orthogonalises matrices by Newton-Schulz iteration: out has the singular vectors of in and singular values near 1.
///
/// out, in [rows, columns] or a batch [b, rows, columns] float32, rows and batch may be strided; out may alias in; a
/// zero matrix gives zero. A batch gives the bits of single calls.
/// The iteration works in the wide orientation, and the norm is taken in it: the transpose has the transposed bits. A
/// tall matrix is transposed while it is divided. `square_sums`, if the caller has them: device::BlockSquareSums of in
/// along its longer side, [s, n] or [b, s, n] float64; the result is the same without. Scratch from `workspace` for
/// each matrix, s = min, l = max of the sides: two s x l and two s x s (Gram: four) of the iterates' type, the norm,
/// its sums unless given, and with 16-bit iterates of a tall matrix one s x l float32. Asynchronous on `stream`;
/// another shape of out, an empty matrix or steps < 1 is an InternalError. Source: docs/optimizers.md, Newton-Schulz
/// (Jordan 2024; Polar Express, arXiv 2505.16932; gram-newton-schulz).
void newton_schulz(device::Stream& stream, device::BufferPool& workspace, device::Tensor out, device::Tensor in,
                   const NewtonSchulzOptions& options, device::Tensor square_sums = {});

}  // namespace mfsdp::optim
