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
    StoreOptions store;
    OptimizerSetup optimizer;
};

/// Fills the tokens of micro-batch m of the present step: inputs and targets [B, T], row-major.
using LoadMicroBatch =
    std::function<void(std::int64_t micro_batch, std::span<std::int32_t> inputs, std::span<std::int32_t> targets)>;

struct StepResult {
    double loss = 0.0;       ///< mean over the targets of the global batch, before the update
    double grad_norm = 0.0;  ///< of the mean gradient, before clipping
    double clip_scale = 1.0;
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

    /// Step `number` = 1, 2, ...: forward, backward, agreement, update. All learning rates are multiplied by
    /// `rate_factor`. A non-finite loss or gradient on any rank is a NumericalError on every rank, before any update. A
    /// batch without targets (facts.targets = 0) leaves everything as it was.
    StepResult step(std::int64_t number, double rate_factor, const LoadMicroBatch& load);
    /// Blocks until nothing of this rank is under way: a step returns while new weights still travel. After the last
    /// step; without it they are given up.
    void settle();

  private:
    void load_tokens(const LoadMicroBatch& load);
    void run_visit(std::int64_t index);
    [[nodiscard]] LocalFacts local_facts();
    [[nodiscard]] model::MicroBatch micro_batch(std::int64_t micro_step) const;
    [[nodiscard]] bool has_micro_batch(std::int64_t micro_step) const;

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

    std::int64_t micro_steps_ = 1;  // of this run: ceil(micro_batches / ranks)
    std::int64_t own_ = 0;          // micro-batches of this rank
    device::Buffer tokens_;         // [2][own micro-batches][B][T] int32: inputs, then targets
    device::Buffer totals_;         // loss sums (float64), target counts (int64), exact-sum words (int64)
    std::vector<std::int32_t> host_tokens_;
    std::vector<double> host_loss_sums_;
    std::vector<std::int64_t> host_counts_;
    std::vector<std::int64_t> host_words_;
    std::vector<MicroBatchLoss> losses_;
    StepTimes times_;
    comm::TransferTotals reported_;   // executor totals at the last agreement
    std::int64_t publish_bytes_ = 0;  // what one publish sends from here
    bool published_ = false;          // since the last agreement
    double last_agreement_ = 0.0;
};

}  // namespace mfsdp::runtime
