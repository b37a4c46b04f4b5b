#include "mfsdp/model/transformer.h"

#include "mfsdp/base/error.h"

#include "model/layers/block.h"
#include "model/layers/embedding_unit.h"
#include "model/layers/head_unit.h"
#include "model/rotary_memory.h"

#include <string>
#include <vector>

namespace mfsdp::model {

using device::DType;
using device::Tensor;

namespace {

bool has_shape(const Tensor& tensor, const std::vector<std::int64_t>& shape) {
    if (tensor.rank != static_cast<int>(shape.size())) return false;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        if (tensor.shape[axis] != shape[axis]) return false;
    }
    return true;
}

void check_micro_batch(const MicroBatch& micro_batch, const TransformerOptions& options) {
    const Tensor& inputs = micro_batch.inputs;
    MFSDP_ASSERT(inputs.rank == 2 && inputs.dtype == DType::int32 && inputs.is_dense() && inputs.count() > 0,
                 "inputs are dense [B, T] int32, got " + inputs.describe());
    MFSDP_ASSERT(inputs.shape[0] <= options.batch_size && inputs.shape[1] <= options.sequence_length,
                 "a micro-batch has at most " + std::to_string(options.batch_size) + " sequences of " +
                     std::to_string(options.sequence_length) + " tokens, got " + inputs.describe());
}

void check_targets(const MicroBatch& micro_batch) {
    MFSDP_ASSERT(same_shape(micro_batch.inputs, micro_batch.targets) && micro_batch.targets.dtype == DType::int32 &&
                     micro_batch.targets.is_dense(),
                 "targets are shaped like the inputs, got " + micro_batch.targets.describe());
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
          rotary_(spec.config, options.sequence_length, ledger, compute),
          embedding_(make<EmbeddingUnit>(0)),
          head_(make<HeadUnit>(spec.head_unit())) {
        MFSDP_ASSERT(options.batch_size >= 1 && options.sequence_length >= 1, "a micro-batch holds at least one token");
        MFSDP_ASSERT(options.sequence_length <= spec.config.max_position_embeddings,
                     "sequences are no longer than max_position_embeddings = " +
                         std::to_string(spec.config.max_position_embeddings));
        for (std::int64_t block = 0; block < spec.blocks(); ++block) {
            blocks_.push_back(make<Block>(block + 1, rotary_.tables()));
        }
        records_.resize(blocks_.size());
    }

    void forward(std::int64_t unit, UnitTensors weights, const MicroBatch& micro_batch) {
        MFSDP_ASSERT(!backward_ && unit == next_unit_ && unit < spec_.head_unit(),
                     "units run forward in order, got unit " + std::to_string(unit) + " instead of " +
                         std::to_string(next_unit_));
        check_tensors(unit, weights, "weights");
        if (unit == 0) {
            check_micro_batch(micro_batch, options_);
            residual_ = embedding_.forward(begin_micro_batch(micro_batch), weights, micro_batch.inputs);
        } else {
            const auto block = static_cast<std::size_t>(unit - 1);
            residual_ = blocks_[block].forward(context(), weights, std::move(residual_), records_[block]);
        }
        ++next_unit_;
    }

    void backward(std::int64_t unit, UnitTensors weights, UnitTensors gradients, const MicroBatch& micro_batch) {
        MFSDP_ASSERT(unit == next_unit_ && (backward_ || unit == spec_.head_unit()),
                     "units run backward in reverse order from the head, got unit " + std::to_string(unit) +
                         " instead of " + std::to_string(next_unit_));
        MFSDP_ASSERT(micro_batch.inputs.shape[0] == batch_size_ && micro_batch.inputs.shape[1] == sequence_length_,
                     "backward sees the micro-batch of its forward, got " + micro_batch.inputs.describe());
        if (unit != 0) check_tensors(unit, weights, "weights");
        check_tensors(unit, gradients, "gradients");
        if (unit == spec_.head_unit()) {
            check_targets(micro_batch);
            residual_gradient_ = head_.train(context(), weights, gradients, std::move(residual_), micro_batch);
        } else if (unit > 0) {
            const auto block = static_cast<std::size_t>(unit - 1);
            blocks_[block].backward(context(), weights, gradients, residual_gradient_.tensor(), records_[block]);
        } else {
            embedding_.backward(context(), gradients, residual_gradient_.tensor(), micro_batch.inputs);
            residual_gradient_.release();
        }
        backward_ = unit > 0;
        next_unit_ = unit > 0 ? unit - 1 : 0;
    }

    void evaluate(UnitTensors head_weights, const MicroBatch& micro_batch) {
        begin_head(head_weights);
        check_targets(micro_batch);
        MFSDP_ASSERT(micro_batch.inputs.shape[0] == batch_size_ && micro_batch.inputs.shape[1] == sequence_length_,
                     "the head sees the micro-batch of the blocks, got " + micro_batch.inputs.describe());
        head_.evaluate(context(), head_weights, std::move(residual_), micro_batch);
        next_unit_ = 0;
    }

    void logits(UnitTensors head_weights, const Tensor& out) {
        begin_head(head_weights);
        MFSDP_ASSERT(has_shape(out, {batch_size_, sequence_length_, spec_.config.vocab_size}) &&
                         out.dtype == DType::float32 && out.is_dense(),
                     "logits are dense [B, T, V] float32, got " + out.describe());
        head_.logits(context(), head_weights, std::move(residual_),
                     out.reshape({batch_size_ * sequence_length_, spec_.config.vocab_size}));
        next_unit_ = 0;
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

    [[nodiscard]] LayerContext context() const { return {compute_, activations_, batch_size_, sequence_length_}; }
    [[nodiscard]] LayerContext begin_micro_batch(const MicroBatch& micro_batch) {
        batch_size_ = micro_batch.inputs.shape[0];
        sequence_length_ = micro_batch.inputs.shape[1];
        return context();
    }
    /// The head without backward: nothing saved by the blocks is needed any more.
    void begin_head(UnitTensors head_weights) {
        MFSDP_ASSERT(!backward_ && next_unit_ == spec_.head_unit(), "the head runs after the forward of all blocks");
        check_tensors(spec_.head_unit(), head_weights, "weights");
        for (BlockRecord& record : records_) record = {};
    }
    void check_tensors(std::int64_t unit, UnitTensors tensors, const char* what) const {
        const UnitSpec& description = spec_.units[static_cast<std::size_t>(unit)];
        MFSDP_ASSERT(tensors.size() == description.parameters.size(),
                     description.name + " has " + std::to_string(description.parameters.size()) + " " + what +
                         ", got " + std::to_string(tensors.size()));
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const ParameterSpec& parameter = spec_.parameters[static_cast<std::size_t>(description.parameters[i])];
            MFSDP_ASSERT(has_shape(tensors[i], parameter.shape) && tensors[i].defined() &&
                             tensors[i].dtype == DType::float32 && tensors[i].is_dense(),
                         "the " + std::string(what) + " of " + parameter.name +
                             " are dense float32 in the parameter's shape, got " + tensors[i].describe());
        }
    }

    const ModelSpec& spec_;
    TransformerOptions options_;
    device::BufferPool& activations_;
    device::Stream& compute_;
    RotaryMemory rotary_;
    EmbeddingUnit embedding_;
    HeadUnit head_;
    std::vector<Block> blocks_;

    // The micro-batch under way.
    std::int64_t batch_size_ = 0;
    std::int64_t sequence_length_ = 0;
    std::int64_t next_unit_ = 0;
    bool backward_ = false;
    Activation residual_;           ///< [n, C], output of the last forward
    Activation residual_gradient_;  ///< [n, C], one buffer from the head down to the embedding
    std::vector<BlockRecord> records_;
};

Transformer::Transformer(const ModelSpec& spec, const TransformerOptions& options, device::MemoryLedger& ledger,
                         device::BufferPool& activations, device::Stream& compute)
    : implementation_(std::make_unique<Implementation>(spec, options, ledger, activations, compute)) {}

Transformer::~Transformer() = default;

void Transformer::forward(std::int64_t unit, std::span<const Tensor> weights, const MicroBatch& micro_batch) {
    implementation_->forward(unit, weights, micro_batch);
}

void Transformer::backward(std::int64_t unit, std::span<const Tensor> weights, std::span<const Tensor> gradients,
                           const MicroBatch& micro_batch) {
    implementation_->backward(unit, weights, gradients, micro_batch);
}

void Transformer::evaluate(std::span<const Tensor> head_weights, const MicroBatch& micro_batch) {
    implementation_->evaluate(head_weights, micro_batch);
}

void Transformer::logits(std::span<const Tensor> head_weights, Tensor out) {
    implementation_->logits(head_weights, out);
}

}  // namespace mfsdp::model
