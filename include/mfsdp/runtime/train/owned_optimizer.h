#pragma once

#include "mfsdp/optim/adamw.h"
#include "mfsdp/optim/matrix_optimizer.h"
#include "mfsdp/runtime/store/gradient_store.h"
#include "mfsdp/runtime/train/matrix_health.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace mfsdp::runtime {

/// Peak learning rate and decoupled weight decay of one parameter.
struct ParameterRates {
    double learning_rate = 0.0;
    double weight_decay = 0.0;
};

struct OptimizerSetup {
    std::shared_ptr<optim::MatrixOptimizer> matrix;  ///< null: no parameter has role matrix
    bool split_row_blocks = true;                    ///< fused matrices as the blocks that the model declares
    optim::AdamWOptions element;
    std::vector<ParameterRates> rates;  ///< by parameter index
};

/// The optimizer of one rank: steps what the rank owns and moves nothing. Matrices go to the matrix optimizer, all
/// other rows to AdamW; state is allocated at start.
class OwnedOptimizer {
  public:
    /// Allocates the state of what the rank owns, with its start values, and the workspace. `weights` and `gradients`
    /// must outlive it; workspace_bytes < 0: a limitless pool, for rehearsals.
    OwnedOptimizer(const RankContext& context, const ParameterStore& weights, const GradientStore& gradients,
                   const OptimizerSetup& setup, std::int64_t workspace_bytes);

    /// Adds the squares of the gradient rows that this rank counts (of several holders the lowest rank counts a row) to
    /// `words`, [ExactSum::kWords + 1] int64.
    void count_squares(device::Tensor words);
    /// Update t = `step` (1, 2, ...) of everything owned; rates are multiplied by `rate_factor`. `health`, unless null,
    /// gets an entry for each matrix that this rank reports (of several holders the lowest); then the call blocks.
    void step(std::int64_t step, double rate_factor, const device::GradientScale& scale,
              std::vector<MatrixHealth>* health = nullptr);

    [[nodiscard]] std::int64_t workspace_high_water() const { return workspace_.high_water(); }

  private:
    struct Owned {
        OwnedRows rows;
        optim::Role role = optim::Role::tail;
        bool counts_norm = true;
        std::vector<device::Tensor> states;
        std::vector<model::RowBlock> blocks;
        std::int64_t matrix_number = 0;  // of its first matrix, the same on every rank
    };

    RankContext context_;
    OptimizerSetup setup_;
    const GradientStore& gradients_;
    std::vector<Owned> owned_;
    std::vector<optim::MatrixStep> matrices_;  // of the present step
    device::Buffer state_;
    device::BufferPool workspace_;
};

}  // namespace mfsdp::runtime
