#include "mfsdp/model/transformer.h"

#include "mfsdp/base/error.h"

#include "model/layers/block.h"
#include "model/layers/embedding_unit.h"
#include "model/layers/head_unit.h"
#include "model/rotary_memory.h"
#include "model/visit_check.h"

#include <array>
#include <string>
#include <vector>

namespace mfsdp::model {

using device::DType;
using device::Tensor;

namespace {

void check_options(const ModelSpec& spec, const TransformerOptions& options) {
    const auto is_value_type = [](DType type) { return type == DType::float32 || type == DType::bfloat16; };
    MFSDP_ASSERT(options.batch_size >= 1 && options.sequence_length >= 1, "a micro-batch holds at least one token");
    MFSDP_ASSERT(options.sequence_length <= spec.config.max_position_embeddings,
                 "sequences are no longer than max_position_embeddings = " +
                     std::to_string(spec.config.max_position_embeddings));
    MFSDP_ASSERT(is_value_type(options.compute_type) && is_value_type(options.gradient_type),
                 "a model computes and gives gradients in float32 or bfloat16");
    MFSDP_ASSERT(options.recompute_every >= 1 && options.z_loss >= 0.0, "every k-th block with k >= 1, z_loss >= 0");
}

}  // namespace

class Transformer::Implementation {
  public:
    Implementation(const ModelSpec& spec, const TransformerOptions& options, device::MemoryLedger& ledger,
                   device::BufferPool& activations, device::Stream& compute)
        : spec_(spec),
          options_(options),
          activations_(activations),
          compute_(compute),
          visits_{unit_visits(spec, Purpose::train), unit_visits(spec, Purpose::evaluate),
                  unit_visits(spec, Purpose::generate)},
          rotary_(spec.config, options.sequence_length, ledger, compute),
          embedding_(make<EmbeddingUnit>(0)),
          head_(make<HeadUnit>(spec.head_unit(), options)) {
        check_options(spec, options);
        for (std::int64_t block = 0; block < spec.blocks(); ++block) {
            const bool recomputes = block % options.recompute_every == 0;
            blocks_.push_back(
                make<Block>(block + 1, rotary_.tables(), recomputes ? options.recompute : RecomputeMode::none));
        }
        block_records_.resize(blocks_.size());
    }

    void run(const UnitVisit& visit, UnitTensors weights, UnitTensors gradients, const MicroBatch& micro_batch) {
        begin(visit, micro_batch);
        check_tensors(spec_, options_, visit, weights, gradients);
        advance(visit);
        switch (visit.phase) {
            case Phase::forward:
                forward(visit, weights, micro_batch);
                return;
            case Phase::score:
                head_.score(context(), weights, panel(visit), micro_batch, residual_, head_record_,
                            visit.purpose == Purpose::train);
                return;
            case Phase::logits:
                head_.logits(context(), weights, panel(visit), micro_batch, residual_, head_record_);
                return;
            case Phase::backward:
                backward(visit, weights, gradients, micro_batch);
                return;
        }
    }

  private:
    /// A layer takes its tensors one by one, and all of them: otherwise it and the description disagree.
    template <class Layer, class... Arguments>
    [[nodiscard]] Layer make(std::int64_t unit, const Arguments&... arguments) const {
        ParameterCursor cursor;
        Layer layer(cursor, spec_.config, arguments...);
        MFSDP_ASSERT(cursor.used() == spec_.units[static_cast<std::size_t>(unit)].parameters.size(),
                     "a unit takes all of its parameters");
        return layer;
    }

    [[nodiscard]] LayerContext context() const {
        return {compute_, activations_, batch_size_, sequence_length_, options_.compute_type};
    }
    [[nodiscard]] VocabularyPanel panel(const UnitVisit& visit) const { return {spec_, visit.panel}; }

    /// Refuses a visit that is not the next one, and a later visit with another micro-batch than the first.
    void begin(const UnitVisit& visit, const MicroBatch& micro_batch) {
        if (next_ == 0) purpose_ = visit.purpose;
        const std::vector<UnitVisit>& visits = visits_.at(static_cast<std::size_t>(purpose_));
        MFSDP_ASSERT(visit == visits[next_], "visits come in the order of unit_visits, got unit " +
                                                 std::to_string(visit.unit) + " panel " + std::to_string(visit.panel) +
                                                 " as visit " + std::to_string(next_));
        check_micro_batch(spec_, options_, purpose_, micro_batch);
        if (next_ == 0) {
            batch_size_ = micro_batch.inputs.shape[0];
            sequence_length_ = micro_batch.inputs.shape[1];
        }
        MFSDP_ASSERT(micro_batch.inputs.shape[0] == batch_size_ && micro_batch.inputs.shape[1] == sequence_length_,
                     "all visits see the same micro-batch, got " + micro_batch.inputs.describe());
    }
    void advance(const UnitVisit& visit) {
        const std::size_t visits = visits_.at(static_cast<std::size_t>(visit.purpose)).size();
        next_ = next_ + 1 == visits ? 0 : next_ + 1;
    }

    void forward(const UnitVisit& visit, UnitTensors weights, const MicroBatch& micro_batch) {
        if (visit.unit == 0) {
            embedding_.forward(context(), weights, panel(visit), micro_batch.inputs, residual_);
            return;
        }
        const auto block = static_cast<std::size_t>(visit.unit - 1);
        LayerContext in_block = context();
        if (micro_batch.max_logits.defined()) {
            in_block.max_logits =
                micro_batch.max_logits.slice(0, visit.unit - 1, 1).reshape({spec_.config.num_attention_heads});
        }
        residual_ = blocks_[block].forward(in_block, weights, std::move(residual_), block_records_[block],
                                           visit.purpose == Purpose::train);
    }

    void backward(const UnitVisit& visit, UnitTensors weights, UnitTensors gradients, const MicroBatch& micro_batch) {
        if (visit.unit == spec_.head_unit()) {
            head_.backward(context(), weights, gradients, panel(visit), micro_batch, head_record_, residual_gradient_);
        } else if (visit.unit > 0) {
            const auto block = static_cast<std::size_t>(visit.unit - 1);
            blocks_[block].backward(context(), weights, gradients, residual_gradient_.tensor(), block_records_[block]);
        } else {
            embedding_.backward(context(), gradients, panel(visit), residual_gradient_.tensor(), micro_batch.inputs);
            if (next_ == 0) residual_gradient_.release();
        }
    }

    const ModelSpec& spec_;
    TransformerOptions options_;
    device::BufferPool& activations_;
    device::Stream& compute_;
    std::array<std::vector<UnitVisit>, 3> visits_;  ///< by Purpose
    RotaryMemory rotary_;
    EmbeddingUnit embedding_;
    HeadUnit head_;
    std::vector<Block> blocks_;

    // The micro-batch under way.
    Purpose purpose_ = Purpose::train;
    std::size_t next_ = 0;  ///< visit
    std::int64_t batch_size_ = 0;
    std::int64_t sequence_length_ = 0;
    Activation residual_;           ///< [n, C], output of the last forward
    Activation residual_gradient_;  ///< [n, C], one buffer from the head down to the embedding
    std::vector<BlockRecord> block_records_;
    HeadRecord head_record_;
};

Transformer::Transformer(const ModelSpec& spec, const TransformerOptions& options, device::MemoryLedger& ledger,
                         device::BufferPool& activations, device::Stream& compute)
    : implementation_(std::make_unique<Implementation>(spec, options, ledger, activations, compute)) {}

Transformer::~Transformer() = default;

void Transformer::run(const UnitVisit& visit, std::span<const Tensor> weights, std::span<const Tensor> gradients,
                      const MicroBatch& micro_batch) {
    implementation_->run(visit, weights, gradients, micro_batch);
}

}  // namespace mfsdp::model
