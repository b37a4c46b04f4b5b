#pragma once

#include "mfsdp/runtime/train/capacity.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mfsdp::runtime {

/// What mfsdp-plan is asked.
struct PlanQuestion {
    std::int64_t ranks = 0;              ///< 0: parallel.mesh of the configuration, else 1
    bool rehearses = true;               ///< false: owners and balance only
    std::optional<double> memory_gib{};  ///< memory of a rank; empty: this machine's, shared by all ranks
};

/// What mfsdp-plan answers.
struct PlanReport {
    TrainConfig config;  ///< with the mesh of the ranks asked about
    RunPlan run;
    std::vector<Rehearsal> rehearsals;  ///< by rank; empty without rehearsal
    std::optional<Fit> fit;             ///< does it fit?
    bool searched = false;              ///< with a memory named: what else would fit
    std::optional<MicroBatchFit> largest_micro_batch;
    std::optional<RanksFit> fewest_ranks;
};

/// ConfigError if the configuration cannot be planned on these ranks.
[[nodiscard]] PlanReport make_plan_report(const TrainConfig& config, const PlanQuestion& question);

/// Tables for people: owners, transfers, memory and traffic of every rank, balance, what fits.
[[nodiscard]] std::string plan_text(const PlanReport& report);
/// The same as JSON for programs.
[[nodiscard]] std::string plan_json(const PlanReport& report);

}  // namespace mfsdp::runtime
