#pragma once

#include "mfsdp/device/buffer_pool.h"
#include "mfsdp/model/parameter_spec.h"

#include <cstdint>
#include <memory>
#include <span>

namespace mfsdp::model {

/// The tokens and loss slots of one micro-batch, all on the device. B and T may be smaller than TransformerOptions say.
struct MicroBatch {
    device::Tensor inputs;        ///< [B, T] int32
    device::Tensor targets;       ///< [B, T] int32, device::kIgnoredTarget where a position does not count
    device::Tensor loss_sum;      ///< [1] float64, written by the head: sum of losses over the targets that count
    device::Tensor target_count;  ///< [1] int64, written by the head
};

struct TransformerOptions {
    std::int64_t batch_size = 1;       ///< most sequences of a micro-batch
    std::int64_t sequence_length = 1;  ///< most tokens of a sequence, <= max_position_embeddings
};

/// Forward and backward of a transformer, unit by unit. It knows nothing of ranks: whoever calls it brings the weights
/// of a unit and takes its gradients.
///
/// A micro-batch is: forward(0), forward(1), ..., forward(blocks), then backward(head_unit()) - the head runs forward
/// and backward in one visit - then backward(blocks) ... backward(0). Saved tensors belong to an activation record per
/// unit that lives from its forward to its backward, in `activations`. Everything is issued to `compute`; nothing waits
/// for the host. Gradients are those of the *sum* of the losses (weight 1 per target).
class Transformer {
  public:
    /// Borrowed arguments must outlive the object. Rotary tables are made here (category workspace of `ledger`).
    Transformer(const ModelSpec& spec, const TransformerOptions& options, device::MemoryLedger& ledger,
                device::BufferPool& activations, device::Stream& compute);
    Transformer(const Transformer&) = delete;
    Transformer& operator=(const Transformer&) = delete;
    ~Transformer();

    /// Forward of an embedding or block unit. weights[i] is the tensor of spec.units[unit].parameters[i] in its
    /// in-memory shape, dense float32.
    void forward(std::int64_t unit, std::span<const device::Tensor> weights, const MicroBatch& micro_batch);

    /// Backward of a unit (for the head: forward and backward). gradients[i] has the shape of weights[i] and is
    /// written, never added to. The embedding ignores `weights`, which may be undefined tensors of the right shape.
    void backward(std::int64_t unit, std::span<const device::Tensor> weights, std::span<const device::Tensor> gradients,
                  const MicroBatch& micro_batch);

    /// For validation: after forward() of all blocks, loss_sum and target_count without gradients, in the same bits as
    /// backward(head) writes them; ends the micro-batch and gives its activations back.
    void evaluate(std::span<const device::Tensor> head_weights, const MicroBatch& micro_batch);

    /// For tests and sampling: after forward() of all blocks, logits [B, T, V] instead of backward(head); ends the
    /// micro-batch and gives its activations back.
    void logits(std::span<const device::Tensor> head_weights, device::Tensor out);

  private:
    class Implementation;
    std::unique_ptr<Implementation> implementation_;
};

/// Fills rows [row_begin, row_begin + rows of out) of a parameter with its initial values, which depend on
/// (seed, name, element index) alone: equal bits for every cut over ranks.
void initialise(device::Stream& stream, const ParameterSpec& parameter, device::Tensor out, std::int64_t row_begin,
                std::uint64_t seed);

/// 6 (P - input embedding if untied) + 12 L H D T: FLOPs per token of forward and backward (formats.md, section 3).
[[nodiscard]] double flops_per_token(const ModelSpec& spec, std::int64_t sequence_length);

}  // namespace mfsdp::model
