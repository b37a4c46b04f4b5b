#pragma once

#include "mfsdp/model/transformer.h"

#include "model/layers/norm.h"
#include "model/layers/vocabulary_panel.h"

namespace mfsdp::model {

/// What the head keeps of a micro-batch between its visits.
struct HeadRecord {
    Activation input;  ///< [n, C], the residual stream
    NormRecord norm;
    Activation normed;                      ///< [n, C]
    Activation maximum, sum, target_logit;  ///< [n] float32
    Activation logits;                      ///< [n V] float32, panel after panel, if they are kept for the backward
    Activation grad_normed;                 ///< [n, C] float32, the sum over the panels visited so far
};

/// Final norm, logits and loss, one panel of the vocabulary per visit and within it one chunk of tokens at a time, so
/// that memory grows neither with B T V nor with V C. A panel is scored first, for log Z needs all of them, and visited
/// again for the gradients. Its logits are kept in between if those of all panels are few, else computed again; the
/// bits are the same, for the products are.
class HeadUnit {
  public:
    HeadUnit(ParameterCursor& cursor, const ModelConfig& config, const TransformerOptions& options)
        : vocab_size_(config.vocab_size),
          hidden_size_(config.hidden_size),
          z_loss_(static_cast<float>(options.z_loss)),
          kept_logit_bytes_(options.kept_logit_bytes),
          norm_(cursor, config),
          weight_(cursor.next()) {}

    /// Adds a panel to log Z. The first panel takes the residual stream, the last one writes the sums of `micro_batch`;
    /// unless it is for training, it empties `record`.
    void score(const LayerContext& context, UnitTensors weights, const VocabularyPanel& panel,
               const MicroBatch& micro_batch, Activation& residual, HeadRecord& record, bool train) const;
    /// Writes the gradient of a panel; panels come in falling order. The first panel of the vocabulary, which comes
    /// last, writes the norm's gradients and that of the residual stream [n, C], and empties `record`.
    void backward(const LayerContext& context, UnitTensors weights, UnitTensors gradients, const VocabularyPanel& panel,
                  const MicroBatch& micro_batch, HeadRecord& record, Activation& residual_gradient) const;
    /// Writes a panel's columns of micro_batch.logits. The first panel takes the residual stream, the last one empties
    /// `record`.
    void logits(const LayerContext& context, UnitTensors weights, const VocabularyPanel& panel,
                const MicroBatch& micro_batch, Activation& residual, HeadRecord& record) const;

  private:
    /// A chunk of tokens in one panel.
    struct Chunk {
        std::int64_t begin;
        device::Tensor normed;   ///< [m, C]
        device::Tensor targets;  ///< [m]
        device::Tensor maximum, sum, target_logit;
        device::Tensor logits;  ///< [m, panel]
    };

    [[nodiscard]] bool keeps_logits(const LayerContext& context) const;
    /// Memory for the logits of one chunk; none where those of the whole panel are kept.
    [[nodiscard]] Activation chunk_logits(const LayerContext& context, const VocabularyPanel& panel,
                                          const HeadRecord& record) const;
    template <class Body>
    void for_each_chunk(const LayerContext& context, const VocabularyPanel& panel, const MicroBatch& micro_batch,
                        const HeadRecord& record, const device::Tensor& scratch, Body body) const;
    /// The panel's rows that stand for tokens.
    [[nodiscard]] device::Tensor token_rows(const device::Tensor& table, const VocabularyPanel& panel) const {
        return table.slice(0, 0, panel.tokens);
    }
    void compute_logits(const LayerContext& context, const device::Tensor& weight, const Chunk& chunk) const;
    void backward_tokens(const LayerContext& context, const device::Tensor& weight, const device::Tensor& grad_weight,
                         const VocabularyPanel& panel, const MicroBatch& micro_batch, HeadRecord& record) const;
    [[nodiscard]] Activation backward_norm(const LayerContext& context, UnitTensors weights, UnitTensors gradients,
                                           HeadRecord& record) const;

    std::int64_t vocab_size_;
    std::int64_t hidden_size_;
    float z_loss_;
    std::int64_t kept_logit_bytes_;
    Norm norm_;
    std::size_t weight_;
};

}  // namespace mfsdp::model
