#pragma once

#include "mfsdp/runtime/telemetry/metrics.h"
#include "mfsdp/runtime/train/engine.h"
#include "mfsdp/runtime/train/run_plan.h"

#include <cstdint>
#include <string>

namespace mfsdp::runtime {

/// What lies between two lines of metrics: sums over its steps of the slowest rank's times.
struct StepInterval {
    std::int64_t steps = 0;
    double wall_seconds = 0.0;
    StepTimes longest;
    double mean_optimizer_seconds = 0.0;

    void add(const GlobalFacts& facts, double seconds);
    [[nodiscard]] double mean(double sum) const { return sum / static_cast<double>(steps); }
};

/// Where a run stands after a step.
struct RunPosition {
    std::int64_t step = 0;  ///< completed
    double epoch = 0.0;
    double rate_factor = 1.0;  ///< of this step
    std::int64_t skipped_total = 0;
};

/// The first line of metrics of a start.
[[nodiscard]] RunRecord run_record(const TrainConfig& config, const RunPlan& plan, const std::string& device,
                                   std::int64_t samples_per_epoch);
/// The line of a step: values of the step, times as means over the interval that ends with it.
[[nodiscard]] TrainRecord train_record(const TrainConfig& config, const RunPlan& plan, const RunPosition& position,
                                       const StepResult& result, const StepInterval& past);

}  // namespace mfsdp::runtime
