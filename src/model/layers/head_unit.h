#pragma once

#include "mfsdp/model/transformer.h"

#include "model/layers/norm.h"

namespace mfsdp::model {

/// Final norm, logits and loss. Logits exist for one chunk of tokens at a time, stored panel by panel of the
/// vocabulary, so that memory does not grow with B T V and a later head may arrive in panels; forward and backward are
/// one visit.
class HeadUnit {
  public:
    HeadUnit(ParameterCursor& cursor, const ModelConfig& config)
        : vocab_size_(config.vocab_size),
          hidden_size_(config.hidden_size),
          norm_(cursor, config),
          weight_(cursor.next()) {}

    /// Takes the residual stream; writes loss, target count and the unit's gradients; returns the gradient of the
    /// residual stream [n, C].
    [[nodiscard]] Activation train(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                                   Activation input, const MicroBatch& micro_batch) const;
    /// Loss and target count alone.
    void evaluate(const LayerContext& context, UnitTensors weights, Activation input,
                  const MicroBatch& micro_batch) const;
    /// out [n, V] = the logits.
    void logits(const LayerContext& context, UnitTensors weights, Activation input, const device::Tensor& out) const;

  private:
    /// The logits of one chunk of tokens and what is known of each token's distribution.
    struct Chunk {
        device::Tensor normed;                      ///< [m, C]
        device::Tensor targets;                     ///< [m]
        device::Tensor maximum, sum, target_logit;  ///< [m]
        device::Tensor memory;                      ///< [m V], panel after panel, each dense
        [[nodiscard]] device::Tensor logits(std::int64_t panel_begin, std::int64_t panel_rows) const;
    };
    /// Memory of the head's pass over all tokens.
    struct Scratch {
        Scratch(const LayerContext& context, std::int64_t vocab_size);
        Activation maximum, sum, target_logit, log_z_squares, logits;
    };

    template <class Body>
    void for_each_panel(Body body) const;
    [[nodiscard]] Chunk chunk(const Scratch& scratch, const device::Tensor& normed, const device::Tensor& targets,
                              std::int64_t begin) const;
    /// Logits and the final maximum and sum of exponentials of a chunk.
    void score(const LayerContext& context, const device::Tensor& weight, const Chunk& chunk) const;
    static void sum_losses(const LayerContext& context, const Scratch& scratch, const device::Tensor& targets,
                           const MicroBatch& micro_batch);
    /// One panel's logits become their gradient.
    void differentiate(const LayerContext& context, const Chunk& chunk, std::int64_t panel_begin,
                       std::int64_t panel_rows) const;
    void backward_chunk(const LayerContext& context, const device::Tensor& weight, const device::Tensor& grad_weight,
                        const Chunk& chunk, bool first_chunk) const;

    std::int64_t vocab_size_;
    std::int64_t hidden_size_;
    Norm norm_;
    std::size_t weight_;
};

}  // namespace mfsdp::model
