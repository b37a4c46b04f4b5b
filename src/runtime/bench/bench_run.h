#pragma once

#include "mfsdp/runtime/bench/benchmarks.h"
#include "mfsdp/runtime/train/rehearsal.h"

#include <memory>

namespace mfsdp::runtime {

/// A run of a configuration as mfsdp-train would start it, on made-up tokens and without files.
class BenchRun {
  public:
    /// Plans, rehearses and allocates, on all ranks; errors that one rank has are thrown on all.
    /// `times_parts`: see EngineOptions.
    BenchRun(const BenchContext& context, const TrainConfig& wanted, bool times_parts);

    [[nodiscard]] const RunPlan& plan() const { return *plan_; }
    [[nodiscard]] const Rehearsal& rehearsal() const { return rehearsal_; }
    [[nodiscard]] Engine& engine() { return *engine_; }
    /// Step `number` = 1, 2, ... on tokens that are a function of step and micro-batch.
    StepResult step(std::int64_t number);

  private:
    std::unique_ptr<RunPlan> plan_;
    Rehearsal rehearsal_;
    std::unique_ptr<comm::Executor> executor_;
    std::unique_ptr<RankAgreement> agreement_;
    std::unique_ptr<Engine> engine_;
};

/// Transfers between the ranks of a context's communicator; local work if it is alone.
[[nodiscard]] std::unique_ptr<comm::Executor> make_bench_executor(const BenchContext& context,
                                                                  const TrainConfig& config);

}  // namespace mfsdp::runtime
