#pragma once

#include "mfsdp/model/transformer.h"

#include "model/layers/attention.h"
#include "model/layers/mlp.h"
#include "model/layers/norm.h"

namespace mfsdp::model {

/// Everything a block keeps from its forward to its backward; what its recompute mode leaves out is empty in between.
struct BlockRecord {
    Activation input;   ///< [n, C], the residual stream before the attention
    Activation middle;  ///< [n, C], the residual stream before the MLP
    NormRecord first_norm;
    AttentionRecord attention;
    NormRecord second_norm;
    MlpRecord mlp;
};

/// x -> x + attention(norm(x)) -> x + mlp(norm(x)): the pre-norm residual block of all families.
class Block {
  public:
    Block(ParameterCursor& cursor, const ModelConfig& config, const RotaryTables& tables, RecomputeMode recompute)
        : recompute_(recompute),
          first_norm_(cursor, config),
          attention_(cursor, config, tables),
          second_norm_(cursor, config),
          mlp_(cursor, config) {}

    /// Takes the residual stream [n, C] and returns the next; keeps in `record` what a backward needs, or nothing.
    [[nodiscard]] Activation forward(const LayerContext& context, UnitTensors weights, Activation input,
                                     BlockRecord& record, bool keep) const;
    /// Turns the gradient of the block's output into that of its input, in place; empties `record`.
    void backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                  const device::Tensor& residual_gradient, BlockRecord& record) const;

  private:
    /// The parts of the forward, each from what the record holds already.
    void attend(const LayerContext& context, UnitTensors weights, BlockRecord& record) const;
    /// Adds the input to `middle`, which is what attention gave, and norms the sum for the MLP.
    [[nodiscard]] Activation norm_middle(const LayerContext& context, UnitTensors weights, BlockRecord& record) const;

    RecomputeMode recompute_;
    Norm first_norm_;
    Attention attention_;
    Norm second_norm_;
    Mlp mlp_;
};

}  // namespace mfsdp::model
