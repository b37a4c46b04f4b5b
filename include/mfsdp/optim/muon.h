#pragma once

#include "mfsdp/optim/matrix_optimizer.h"
#include "mfsdp/optim/newton_schulz.h"

#include <cstdint>
#include <memory>

namespace mfsdp::optim {

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
    device::DType ns_dtype = device::DType::float32;  ///< of the iterates; norm and momentum are float32
    NewtonSchulzMethod ns_method = NewtonSchulzMethod::automatic;
    bool normuon = false;  ///< rows of the direction are divided by the root of their second moment
    double normuon_beta2 = 0.95;
    double normuon_epsilon = 1e-8;
    bool cautious_weight_decay = false;  ///< decay only where weight and direction do not disagree in sign
};

/// Factor of the learning rate for a block of this shape (docs/optimizers.md, scale).
[[nodiscard]] double muon_scale(const MuonOptions& options, std::int64_t rows, std::int64_t columns);

/// Muon of docs/optimizers.md. Element state: momentum; block state of NorMuon: row_exp_avg_sq [rows].
[[nodiscard]] std::unique_ptr<MatrixOptimizer> make_muon(const MuonOptions& options);

}  // namespace mfsdp::optim
