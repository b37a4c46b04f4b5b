#pragma once

#include "mfsdp/optim/matrix_optimizer.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace mfsdp::optim {

/// Where epsilon joins: after the bias correction, as in AdamW, or before it, as in SOAP's reference.
enum class BiasEpsilon : std::uint8_t { corrected, uncorrected };
enum class DecayOrder : std::uint8_t { before, after };

/// Options of docs/optimizers.md, SOAP, with the defaults of SOAP's reference.
struct SoapOptions {
    double beta1 = 0.95;
    double beta2 = 0.95;
    std::optional<double> shampoo_beta{};  ///< of the factors; empty: beta2
    double epsilon = 1e-8;
    BiasEpsilon epsilon_mode = BiasEpsilon::uncorrected;
    DecayOrder decay_order = DecayOrder::after;
    bool bias_correction = true;
    bool normalize_update = false;
    bool one_sided = false;
    bool skip_first_step = true;  ///< the first gradient only fills the factors
    std::int64_t precondition_frequency = 10;
    std::int64_t max_preconditioner_dim = 8192;
    bool stagger_refresh = false;  ///< refresh when (t + matrix number) mod frequency == 0
};

/// SOAP: Adam in a slowly renewed eigenbasis of Shampoo's factors.
///
/// Block states: exp_avg, exp_avg_sq (in the eigenbasis), left_factor, right_factor, left_basis, right_basis (a side
/// longer than max_preconditioner_dim has none, nor has the longer side if one_sided), and refresh_failures, the number
/// of refreshes in a row in which a basis failed; a failed basis stays what it was, and with it both moments. Source:
/// docs/optimizers.md, SOAP (Vyas et al. 2024, arXiv 2409.11321).
[[nodiscard]] std::unique_ptr<MatrixOptimizer> make_soap(const SoapOptions& options);

}  // namespace mfsdp::optim
