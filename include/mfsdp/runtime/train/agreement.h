#pragma once

#include "mfsdp/base/exact_sum.h"
#include "mfsdp/comm/communicator.h"

#include <cstdint>
#include <span>
#include <vector>

namespace mfsdp::runtime {

/// Seconds of the parts of a step on one rank, measured on the host. optimizer_seconds is that of the step before:
/// it lies behind the agreement. On asynchronous devices only step_seconds tells how long the work took, the others how
/// long the host needed to issue it (but see EngineOptions::times_parts).
struct StepTimes {
    double data_seconds = 0.0;
    double forward_seconds = 0.0;
    double backward_seconds = 0.0;
    double optimizer_seconds = 0.0;
    double exposed_communication_seconds = 0.0;
    double step_seconds = 0.0;  ///< from agreement to agreement
};

/// Sums over the targets of one micro-batch, and their number.
struct MicroBatchLoss {
    double sum = 0.0;            ///< of losses
    double log_z_squares = 0.0;  ///< of (log Z)^2
    std::int64_t targets = 0;
};

/// The matrix with the most failed refreshes of its roots or bases in a row, as the step before left it.
struct RefreshFailures {
    std::int64_t in_a_row = 0;
    std::int64_t matrix = -1;  ///< its number (see matrix_numbers); of several the lowest
};

/// What one rank brings to the agreement of a step.
struct LocalFacts {
    ExactSum squares;  ///< of the gradient rows that this rank counts
    std::int64_t nonfinite_rows = 0;
    std::span<const MicroBatchLoss> losses;  ///< of this rank's micro-batches, in order
    StepTimes times;
    std::int64_t bytes_sent_gather = 0, bytes_sent_reduce = 0, bytes_sent_optimizer = 0;
    std::int64_t memory_peak_bytes = 0;
    RefreshFailures refresh_failures;
    std::span<const float> max_logits{};  ///< of each block and query head, for QK-clip; may be empty
};

/// What all ranks know after the agreement, the same bits on every rank.
struct GlobalFacts {
    ExactSum squares;
    std::int64_t nonfinite_rows = 0;
    MicroBatchLoss loss;   ///< micro-batch sums added in micro-batch order
    StepTimes longest;     ///< maximum over ranks, part by part
    int slowest_rank = 0;  ///< the one that computed longest: the others waited for it
    double mean_optimizer_seconds = 0.0;
    std::int64_t gather_bytes = 0, reduce_bytes = 0, optimizer_bytes = 0;  ///< sent by all ranks
    std::int64_t memory_peak_bytes = 0;                                    ///< maximum over ranks
    RefreshFailures refresh_failures;                                      ///< of all ranks
    std::span<const float> max_logits{};  ///< maximum over ranks, valid until the next exchange
};

/// The one host exchange of a step, between backward and optimizer.
class Agreement {
  public:
    Agreement() = default;
    Agreement(const Agreement&) = delete;
    Agreement& operator=(const Agreement&) = delete;
    virtual ~Agreement() = default;
    /// Blocks until every rank has brought its facts.
    [[nodiscard]] virtual GlobalFacts exchange(const LocalFacts& local) = 0;
};

/// The sum over all micro-batches of what the ranks bring, in micro-batch order; micro-batch m belongs to rank m mod
/// size. For evaluations; all ranks call it and get the same bits. Blocks.
[[nodiscard]] MicroBatchLoss gather_losses(comm::Communicator& communicator, std::int64_t micro_batches,
                                           std::span<const MicroBatchLoss> mine);

/// Over a communicator; micro-batch m belongs to rank m mod size.
class RankAgreement final : public Agreement {
  public:
    /// `logits`: how many max_logits each rank brings.
    RankAgreement(comm::Communicator& communicator, std::int64_t micro_batches, std::int64_t logits = 0);
    [[nodiscard]] GlobalFacts exchange(const LocalFacts& local) override;

  private:
    comm::Communicator& communicator_;
    std::int64_t micro_batches_;
    std::int64_t losses_per_rank_;
    std::vector<float> max_logits_;
    std::vector<std::byte> mine_;
    std::vector<std::byte> all_;
};

/// The answer of a rehearsal: finite, a norm above any usual limit, every target counted.
class RehearsedAgreement final : public Agreement {
  public:
    explicit RehearsedAgreement(std::int64_t targets) : targets_(targets) {}
    [[nodiscard]] GlobalFacts exchange(const LocalFacts& local) override;

  private:
    std::int64_t targets_;
};

}  // namespace mfsdp::runtime
