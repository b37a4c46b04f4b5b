#pragma once

#include "mfsdp/optim/adamw.h"
#include "mfsdp/optim/matrix_stepper.h"
#include "mfsdp/optim/qk_clip.h"
#include "mfsdp/optim/routing.h"
#include "mfsdp/runtime/store/gradient_store.h"
#include "mfsdp/runtime/train/matrix_health.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mfsdp::runtime {

/// Peak learning rate and decoupled weight decay of one parameter.
struct ParameterRates {
    double learning_rate = 0.0;
    double weight_decay = 0.0;
};

struct OptimizerSetup {
    std::shared_ptr<optim::MatrixOptimizer> matrix;  ///< null: no parameter has role matrix
    /// By parameter index: the row blocks that are matrices of their own; empty: the whole.
    std::vector<std::vector<model::RowBlock>> blocks;
    std::int64_t max_refresh_failures = 0;  ///< more failed refreshes of one matrix in a row end the run
    optim::AdamWOptions element;
    optim::QkClipOptions qk_clip;
    std::vector<ParameterRates> rates;  ///< by parameter index
};

/// The number of each parameter's first matrix, in model order over all matrices (row blocks) of the model: by it
/// refreshes are staggered, so it is the same on every rank. Parameters of other roles get that of the next matrix.
[[nodiscard]] std::vector<std::int64_t> matrix_numbers(const std::vector<optim::Role>& roles,
                                                       const std::vector<std::vector<model::RowBlock>>& blocks);
/// The matrix of this number, for messages: "model.layers.0.mlp.up_proj.weight", "...c_attn.weight[q]".
[[nodiscard]] std::string matrix_name(const model::ModelSpec& spec, const std::vector<optim::Role>& roles,
                                      const std::vector<std::vector<model::RowBlock>>& blocks, std::int64_t number);

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

    /// After a step: scales down the query and key rows owned whose logits, [blocks, query heads] float32, are above
    /// the threshold of QK-clip.
    void clip_heads(const device::Tensor& logits);
    /// Counters of failed refreshes in a row [n] int64, one for each matrix owned that has one, and those matrices'
    /// numbers in the same order. They hold what the steps issued so far have left.
    [[nodiscard]] device::Tensor refresh_failures() const;
    [[nodiscard]] std::span<const std::int64_t> failure_numbers() const { return failure_numbers_; }
    /// The matrix of a number, for messages.
    [[nodiscard]] std::string matrix_name(std::int64_t number) const;
    /// Steps that stand for all steps of a run, with what this rank owns.
    [[nodiscard]] std::vector<optim::RehearsalStep> rehearsal_steps() const;

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

    /// Rows to be clipped, a part of what is owned.
    struct Clipped {
        device::Tensor weight;
        optim::HeadRows heads;
        std::int64_t row_begin = 0;  // of `weight` within those of the projection
    };
    void find_clipped();

    RankContext context_;
    OptimizerSetup setup_;
    const GradientStore& gradients_;
    std::vector<Owned> owned_;
    std::vector<Clipped> clipped_;
    std::vector<optim::MatrixStep> matrices_;        // of the present step
    std::vector<optim::ElementStep> elements_;       // likewise
    std::unique_ptr<optim::MatrixStepper> stepper_;  // null without a matrix optimizer
    device::Buffer state_;
    device::Buffer failures_;  // the counters lie together, so that one copy reads them all
    std::vector<std::int64_t> failure_numbers_;
    device::BufferPool workspace_;
};

}  // namespace mfsdp::runtime
