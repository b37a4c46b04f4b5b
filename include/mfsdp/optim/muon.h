#pragma once

#include "mfsdp/optim/matrix_optimizer.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>

namespace mfsdp::optim {

/// Coefficient tables of docs/optimizers.md, Newton-Schulz, by their names in configuration.
enum class CoefficientType : std::uint8_t { quintic /* you5 */, simple /* keller5 */, polar_express, dsv4 };
enum class ScaleMode : std::uint8_t { match_rms_adamw, original, unit_rms_norm, spectral };
enum class MomentumForm : std::uint8_t { ema, heavy_ball };

struct MuonOptions {
    double momentum = 0.95;
    MomentumForm momentum_form = MomentumForm::ema;
    bool nesterov = true;
    std::int64_t num_ns_steps = 5;
    CoefficientType coefficient_type = CoefficientType::quintic;
    ScaleMode scale_mode = ScaleMode::match_rms_adamw;
    double extra_scale_factor = 1.0;
};

/// Row (a, b, c) of Newton-Schulz step `index`: beyond the table its last row repeats.
[[nodiscard]] std::array<double, 3> newton_schulz_coefficients(CoefficientType type, std::int64_t index);

/// Orthogonalises matrices by Newton-Schulz iteration: out has the singular vectors of in and singular values near 1.
///
/// out, in [rows, columns] or a batch [b, rows, columns] float32, rows and batch may be strided; out may alias in; a
/// zero matrix gives zero. A batch gives the bits of single calls.
/// Works in the wide orientation, where the norm is taken too: the transpose has the transposed bits. Scratch from
/// `workspace` for each matrix: 2 s l + 2 s^2 floats, s = min, l = max of the sides, and the norm. Asynchronous on
/// `stream`; another shape of out, an empty matrix or steps < 1 is an InternalError. Source: docs/optimizers.md,
/// Muon (Jordan 2024; Polar Express, arXiv 2505.16932).
void newton_schulz(device::Stream& stream, device::BufferPool& workspace, device::Tensor out, device::Tensor in,
                   CoefficientType type, std::int64_t steps);

/// Factor of the learning rate for a block of this shape (docs/optimizers.md, scale).
[[nodiscard]] double muon_scale(const MuonOptions& options, std::int64_t rows, std::int64_t columns);

/// Muon: one element state, the momentum; its direction is the orthogonalised update of each block. InternalError for
/// num_ns_steps < 1 or a momentum outside [0, 1). Source: docs/optimizers.md, Muon.
[[nodiscard]] std::unique_ptr<MatrixOptimizer> make_muon(const MuonOptions& options);

}  // namespace mfsdp::optim
