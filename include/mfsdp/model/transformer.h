#pragma once

#include "mfsdp/device/buffer_pool.h"
#include "mfsdp/model/parameter_spec.h"
#include "mfsdp/model/unit_visit.h"

#include <cstdint>
#include <memory>
#include <span>

namespace mfsdp::model {

/// The tokens and result slots of one micro-batch, all on the device. B and T may be smaller than TransformerOptions
/// say. What a purpose does not use may be undefined.
struct MicroBatch {
    device::Tensor inputs;           ///< [B, T] int32
    device::Tensor targets;          ///< [B, T] int32, device::kIgnoredTarget where a position does not count
    device::Tensor loss_sum;         ///< [1] float64, written by the head: sum of losses over the targets that count
    device::Tensor target_count;     ///< [1] int64, written by the head
    device::Tensor log_z_squares{};  ///< [1] float64, written by the head: sum of (log Z)^2 over the targets that count
    /// [blocks, H] float32, train: raised to the largest attention logit of each head; undefined: not wanted
    device::Tensor max_logits{};
    device::Tensor logits{};  ///< generate: [B, S, V] float32, S = T for all positions or 1 for the last alone
};

/// What a block computes again in its backward instead of keeping it from its forward. The bits are the same.
enum class RecomputeMode : std::uint8_t {
    none,
    attention,  ///< first norm, query, key, value and their attention, up to the output projection's input
    block,      ///< everything but the block's input
};

struct TransformerOptions {
    std::int64_t batch_size = 1;                           ///< most sequences of a micro-batch
    std::int64_t sequence_length = 1;                      ///< most tokens of a sequence, <= max_position_embeddings
    device::DType compute_type = device::DType::float32;   ///< of weights and activations: float32 or bfloat16
    device::DType gradient_type = device::DType::float32;  ///< of the parameters' gradients: float32 or bfloat16
    double z_loss = 0.0;                                   ///< weight of (log Z)^2 per target in the gradients
    RecomputeMode recompute = RecomputeMode::none;
    std::int64_t recompute_every = 1;  ///< in blocks 0, k, 2k, ...
    /// The head keeps the logits of a whole micro-batch for its backward up to this size, else it computes them again.
    std::int64_t kept_logit_bytes = std::int64_t{128} << 20;
};

/// Forward and backward of a transformer, visit by visit. It knows nothing of ranks: whoever calls it brings the
/// weights of a unit and takes its gradients.
///
/// Saved tensors live from the forward of their unit to its backward, in `activations`. Everything is issued to
/// `compute`; nothing waits for the host. Statistics and sums are float32 whatever the compute type. Gradients are
/// those of the *sum* over targets of loss + z_loss (log Z)^2.
class Transformer {
  public:
    /// Borrowed arguments must outlive the object. Rotary tables are made here (category workspace of `ledger`).
    Transformer(const ModelSpec& spec, const TransformerOptions& options, device::MemoryLedger& ledger,
                device::BufferPool& activations, device::Stream& compute);
    Transformer(const Transformer&) = delete;
    Transformer& operator=(const Transformer&) = delete;
    ~Transformer();

    /// The next visit of the micro-batch, or the first one of a new micro-batch: the visits of unit_visits for one
    /// purpose, in their order, else InternalError.
    ///
    /// weights, gradients  one tensor per spec.units[unit].parameters[i]: dense, in its in-memory shape; in the place
    /// of
    ///                     the unit's vocabulary table the panel [panel_rows, C]; undefined where the visit does not
    ///                     read or write. Weights have the compute type, gradients the gradient type.
    /// Gradients are written, never added to; all rows of a panel, zeros in the padding. One that is undefined although
    /// the visit writes it belongs to a frozen parameter: the work for it is left out.
    void run(const UnitVisit& visit, std::span<const device::Tensor> weights, std::span<const device::Tensor> gradients,
             const MicroBatch& micro_batch);

  private:
    class Implementation;
    std::unique_ptr<Implementation> implementation_;
};

/// Fills rows [row_begin, row_begin + rows of out) of a parameter with its initial values, which depend on
/// (seed, name, element index) alone: equal bits for every cut over ranks. Padding rows are zeros. `out` is float32 or
/// bfloat16, which holds the same values rounded.
void initialise(device::Stream& stream, const ParameterSpec& parameter, device::Tensor out, std::int64_t row_begin,
                std::uint64_t seed);

/// 6 (P - input embedding if untied) + 12 L H D T: FLOPs per token of forward and backward (docs/metrics.md).
[[nodiscard]] double flops_per_token(const ModelSpec& spec, std::int64_t sequence_length);

}  // namespace mfsdp::model
