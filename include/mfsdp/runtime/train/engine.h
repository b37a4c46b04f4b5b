#pragma once

#include "mfsdp/model/transformer.h"
#include "mfsdp/runtime/train/agreement.h"
#include "mfsdp/runtime/train/owned_optimizer.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace mfsdp::runtime {

/// Sizes of a rank's pools in bytes, found by a rehearsal; -1: limitless (rehearsals only).
struct PoolSizes {
    std::int64_t gathered = -1;
    std::int64_t gradient_buffers = -1;
    std::int64_t activations = -1;
    std::int64_t workspace = -1;
};

struct EngineOptions {
    std::int64_t micro_batch_size = 1;  ///< B, sequences
    std::int64_t sequence_length = 1;   ///< T
    std::int64_t micro_batches = 1;     ///< of a step, over all ranks
    double clip_grad = 0.0;             ///< 0: no clipping
    std::int64_t max_logits = 0;        ///< attention logits in the agreement, blocks x query heads with QK-clip
    double z_loss = 0.0;
    model::RecomputeMode recompute = model::RecomputeMode::none;
    std::int64_t recompute_every = 1;
    bool evaluates = false;        ///< evaluate() will be called
    bool generates = false;        ///< next_token() will be called
    bool measures_health = false;  ///< step() will be asked for the health of matrices
    /// The parts of a step are timed to the end of their work, for benchmarks: the host waits for the device where a
    /// part ends. Otherwise parts on an asynchronous device have the time that it took to issue them.
    bool times_parts = false;
    StoreOptions store;
    OptimizerSetup optimizer;
};

/// Fills the tokens of micro-batch m of the present step or evaluation: inputs and targets [B, T], row-major.
using LoadMicroBatch =
    std::function<void(std::int64_t micro_batch, std::span<std::int32_t> inputs, std::span<std::int32_t> targets)>;

/// FLOPs of one optimizer step, and the share of a long run's steps that take as many; 0 for those at the start.
struct OptimizerStepCost {
    std::int64_t flops = 0;
    double share = 1.0;
};

struct StepResult {
    double loss = 0.0;       ///< mean over the targets of the global batch, before the update
    double z_loss = 0.0;     ///< mean of z_loss (log Z)^2, not part of loss
    double grad_norm = 0.0;  ///< of the mean gradient, before clipping
    double clip_scale = 1.0;
    bool skipped = false;  ///< a loss or gradient was not finite on some rank: nothing was updated on any
    GlobalFacts facts;
};

/// One rank's training state and its step: the same code on every device, under every strategy, alone or among many.
///
/// Micro-batch m of a step runs on rank m mod N in micro-step floor(m / N). A rank without one in the last micro-step
/// takes part in every gather and reduction and computes nothing.
class Engine {
  public:
    struct Parts {
        const model::ModelSpec& spec;
        const ShardPlan& plan;
        const comm::Mesh& mesh;
        int rank = 0;
        device::Device& device;
        comm::Executor& executor;
        Agreement& agreement;
    };

    /// Allocates everything that a step needs, weights undefined, and plans its transfers. The parts must outlive the
    /// engine; `pools` are those of a rehearsal of the same run and rank. OutOfMemoryError where the device has not as
    /// much memory. Takes part in no exchange.
    Engine(const Parts& parts, const EngineOptions& options, const PoolSizes& pools);
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    ~Engine();

    [[nodiscard]] ParameterStore& weights() { return *weights_; }
    [[nodiscard]] const GradientStore& gradients() const { return *gradients_; }
    [[nodiscard]] const OwnedOptimizer& optimizer() const { return *optimizer_; }
    [[nodiscard]] const device::MemoryLedger& memory() const { return ledger_; }
    [[nodiscard]] device::Stream& compute() { return *compute_; }
    /// What the pools have reached so far: the sizes that a real engine needs.
    [[nodiscard]] PoolSizes high_water() const;
    /// All schedules in an order that is the same on all ranks.
    [[nodiscard]] std::vector<const comm::TransferSchedule*> schedules() const;

    /// Forward, backward, agreement and update number `update` = 1, 2, ... All learning rates are multiplied by
    /// `rate_factor`. A non-finite loss or gradient on any rank (result.skipped) or a batch without targets
    /// (facts.targets = 0) leaves everything as it was on every rank.
    /// `health`, unless null, gets the health of the matrices that this rank reports.
    StepResult step(std::int64_t update, double rate_factor, const LoadMicroBatch& load,
                    std::vector<MatrixHealth>* health = nullptr);
    /// Losses of `micro_batches` micro-batches without gradients, in the bits that step() would report; micro-batch m
    /// runs on rank m mod N. All ranks call it; a rank without one still takes part in the gathers. Returns this rank's
    /// losses, in order; blocks. Nothing that training uses changes.
    [[nodiscard]] std::vector<MicroBatchLoss> evaluate(std::int64_t micro_batches, const LoadMicroBatch& load);
    /// The most likely token after `tokens` (1 .. T of them; of equals the lowest id), on rank 0; other ranks take part
    /// in the gathers and get -1. All ranks call it; blocks.
    [[nodiscard]] std::int32_t next_token(std::span<const std::int32_t> tokens);
    /// For rehearsals: the optimizer steps that stand for all of a run, priced by `counted`, the device's total so far.
    std::vector<OptimizerStepCost> rehearse_optimizer(const std::function<device::Cost()>& counted);
    /// Blocks until nothing of this rank is under way: a step returns while new weights still travel. After the last
    /// step; without it they are given up.
    void settle();

  private:
    /// Visits that stand outside a step: their traffic and time are not the next step's.
    class Interlude;

    void load_micro_batch(const LoadMicroBatch& load, std::int64_t micro_batch, std::int64_t slot);
    void send_tokens(std::int64_t slots);
    /// A visit of the sequence under way; null: this rank has no micro-batch for it and takes part in transfers only.
    void run_visit(const std::vector<Visit>& sequence, std::int64_t index, const model::MicroBatch* micro_batch);
    [[nodiscard]] LocalFacts local_facts();
    [[nodiscard]] bool clips_heads() const { return options_.max_logits > 0; }
    [[nodiscard]] device::Tensor max_logits() const;
    void require_refreshes(const RefreshFailures& worst) const;
    /// Brings the losses of the first `count` slots to the host; blocks.
    void read_losses(std::int64_t count);
    /// With times_parts: blocks until what was issued is done.
    void end_part();
    [[nodiscard]] model::MicroBatch micro_batch(std::int64_t slot) const;
    [[nodiscard]] std::int64_t slot_tokens() const { return options_.micro_batch_size * options_.sequence_length; }
    [[nodiscard]] device::Tensor totals_view(device::DType dtype, std::int64_t part, std::int64_t begin,
                                             std::int64_t count) const;

    EngineOptions options_;
    device::MemoryLedger ledger_;
    std::unique_ptr<device::Stream> compute_;
    RankContext context_;  // refers to the two above
    Agreement& agreement_;
    std::unique_ptr<ParameterStore> weights_;
    std::unique_ptr<GradientStore> gradients_;
    std::unique_ptr<OwnedOptimizer> optimizer_;
    std::unique_ptr<device::BufferPool> activations_;
    std::unique_ptr<model::Transformer> transformer_;

    std::vector<Visit> step_visits_, evaluation_visits_, generation_visits_;
    std::int64_t own_ = 0;    // micro-batches of this rank in a step
    std::int64_t slots_ = 1;  // micro-batches that there is room for: max(own, 1)
    device::Buffer tokens_;   // [2][slots][B][T] int32: inputs, then targets
    device::Buffer totals_;   // by slot: loss sums (float64), squares of log Z (float64), target counts (int64); then
                              // the exact-sum words (int64)
    device::Buffer logits_;   // [V] float32, of the last position
    std::vector<std::int32_t> host_tokens_;
    std::vector<double> host_sums_;  // loss sums, then squares of log Z
    std::vector<std::int64_t> host_counts_;
    std::vector<std::int64_t> host_words_;
    device::Buffer max_logits_;  // [blocks, query heads] float32, with QK-clip
    std::vector<float> host_max_logits_;
    std::vector<std::int64_t> host_failures_;  // of refreshes, see OwnedOptimizer::refresh_failures
    std::vector<float> host_logits_;
    std::vector<MicroBatchLoss> losses_;
    StepTimes times_;
    comm::TransferTotals reported_;   // executor totals at the last agreement
    std::int64_t publish_bytes_ = 0;  // what one publish sends from here
    bool published_ = false;          // since the last agreement
    double last_agreement_ = 0.0;
};

}  // namespace mfsdp::runtime
