#pragma once

#include "mfsdp/optim/matrix_optimizer.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace mfsdp::optim {

/// Whose step length Shampoo takes.
enum class Grafting : std::uint8_t { adam, rmsprop, adagrad, sgd, none };
enum class RootMethod : std::uint8_t { eigen, coupled_newton };
/// What a ridge is measured by.
enum class EpsilonMode : std::uint8_t { relative /* to the largest eigenvalue */, absolute };

/// Options of docs/optimizers.md, Shampoo, with the program's defaults.
struct ShampooOptions {
    double beta1 = 0.9;
    double beta2 = 0.95;                  ///< 1: factors are sums
    std::optional<double> graft_beta2{};  ///< empty: beta2
    bool bias_correction = true;
    double epsilon = 1e-6;
    EpsilonMode epsilon_mode = EpsilonMode::relative;
    std::int64_t root_order = 4;  ///< p of the exponent -1/p for each side
    RootMethod root_method = RootMethod::eigen;
    Grafting grafting = Grafting::adam;
    double grafting_epsilon = 1e-8;
    std::int64_t start_step = 0;  ///< first preconditioned step; 0: precondition_frequency
    std::int64_t precondition_frequency = 10;
    std::int64_t max_preconditioner_dim = 8192;
    bool stagger_refresh = false;  ///< refresh when (t + matrix number) mod frequency == 0
};

/// Shampoo with whole factors on the owner.
///
/// Element states: momentum, and graft_exp_avg_sq where the graft has one. Block states: left_factor, right_factor,
/// left_root, right_root (a side longer than max_preconditioner_dim has none), and refresh_failures, the number of
/// refreshes in a row in which a root failed; a failed root stays what it was. Source: docs/optimizers.md,
/// Shampoo (Gupta, Koren, Singer 2018; Shi et al. 2023).
[[nodiscard]] std::unique_ptr<MatrixOptimizer> make_shampoo(const ShampooOptions& options);

}  // namespace mfsdp::optim
