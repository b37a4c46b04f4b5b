#include "mfsdp/runtime/train/agreement.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace mfsdp::runtime {

namespace {

/// The fixed part of a rank's message; its micro-batch losses follow.
struct Header {
    ExactSum squares;
    std::int64_t nonfinite_rows = 0;
    StepTimes times;
    std::int64_t gather_bytes = 0, reduce_bytes = 0, optimizer_bytes = 0;
    std::int64_t memory_peak_bytes = 0;
    RefreshFailures refresh_failures;
};

/// Replaces the worst by another that is worse.
void raise_to(RefreshFailures& worst, const RefreshFailures& other) {
    const bool first = other.in_a_row == worst.in_a_row && other.matrix >= 0 && other.matrix < worst.matrix;
    if (other.in_a_row > worst.in_a_row || first) worst = other;
}

void raise_to(StepTimes& longest, const StepTimes& times) {
    const auto raise = [](double& a, double b) { a = std::max(a, b); };
    raise(longest.data_seconds, times.data_seconds);
    raise(longest.forward_seconds, times.forward_seconds);
    raise(longest.backward_seconds, times.backward_seconds);
    raise(longest.optimizer_seconds, times.optimizer_seconds);
    raise(longest.exposed_communication_seconds, times.exposed_communication_seconds);
    raise(longest.step_seconds, times.step_seconds);
}

/// The time that a rank was busy itself, not waiting for transfers.
double busy_seconds(const StepTimes& times) {
    return times.data_seconds + times.forward_seconds + times.backward_seconds + times.optimizer_seconds -
           times.exposed_communication_seconds;
}

/// Sums in micro-batch order, not rank order: they must have the same bits for every number of ranks.
/// loss_of(rank, i) is the i-th loss of a rank.
template <class LossOf>
MicroBatchLoss sum_in_order(std::int64_t micro_batches, std::int64_t ranks, LossOf loss_of) {
    MicroBatchLoss total;
    for (std::int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
        const MicroBatchLoss loss = loss_of(micro_batch % ranks, micro_batch / ranks);
        total.sum += loss.sum;
        total.log_z_squares += loss.log_z_squares;
        total.targets += loss.targets;
    }
    return total;
}

}  // namespace

MicroBatchLoss gather_losses(comm::Communicator& communicator, std::int64_t micro_batches,
                             std::span<const MicroBatchLoss> mine) {
    const auto ranks = static_cast<std::int64_t>(communicator.size());
    const auto per_rank = static_cast<std::size_t>((micro_batches + ranks - 1) / ranks);
    MFSDP_ASSERT(mine.size() <= per_rank, "a rank has its share of the micro-batches");
    std::vector<MicroBatchLoss> padded(mine.begin(), mine.end());
    padded.resize(per_rank);
    std::vector<MicroBatchLoss> all(per_rank * static_cast<std::size_t>(ranks));
    communicator.all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)));
    return sum_in_order(micro_batches, ranks, [&](std::int64_t rank, std::int64_t i) {
        return all[static_cast<std::size_t>(rank) * per_rank + static_cast<std::size_t>(i)];
    });
}

RankAgreement::RankAgreement(comm::Communicator& communicator, std::int64_t micro_batches, std::int64_t logits)
    : communicator_(communicator),
      micro_batches_(micro_batches),
      losses_per_rank_((micro_batches + communicator.size() - 1) / communicator.size()),
      max_logits_(static_cast<std::size_t>(logits)),
      mine_(sizeof(Header) + static_cast<std::size_t>(losses_per_rank_) * sizeof(MicroBatchLoss) +
            max_logits_.size() * sizeof(float)),
      all_(mine_.size() * static_cast<std::size_t>(communicator.size())) {}

GlobalFacts RankAgreement::exchange(const LocalFacts& local) {
    MFSDP_ASSERT(static_cast<std::int64_t>(local.losses.size()) <= losses_per_rank_, "one loss per micro-step");
    MFSDP_ASSERT(local.max_logits.size() == max_logits_.size(), "every rank brings the logits that were announced");
    const std::size_t logits_offset = mine_.size() - max_logits_.size() * sizeof(float);
    const Header header{local.squares,           local.nonfinite_rows,    local.times,
                        local.bytes_sent_gather, local.bytes_sent_reduce, local.bytes_sent_optimizer,
                        local.memory_peak_bytes, local.refresh_failures};
    std::fill(mine_.begin(), mine_.end(), std::byte{0});
    std::memcpy(mine_.data(), &header, sizeof header);
    // Either list may be empty, with a null pointer, which memcpy must not be given.
    std::ranges::copy(std::as_bytes(local.losses), mine_.data() + sizeof header);
    std::ranges::copy(std::as_bytes(local.max_logits), mine_.data() + logits_offset);
    communicator_.all_gather(mine_, all_);

    GlobalFacts global;
    std::fill(max_logits_.begin(), max_logits_.end(), -std::numeric_limits<float>::infinity());
    global.max_logits = max_logits_;
    double longest_busy = -1.0;
    const auto ranks = static_cast<std::int64_t>(communicator_.size());
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        Header other;
        std::memcpy(&other, all_.data() + static_cast<std::size_t>(rank) * mine_.size(), sizeof other);
        global.squares.add(other.squares);
        global.nonfinite_rows += other.nonfinite_rows;
        raise_to(global.longest, other.times);
        if (const double busy = busy_seconds(other.times); busy > longest_busy) {
            longest_busy = busy;
            global.slowest_rank = static_cast<int>(rank);
        }
        global.mean_optimizer_seconds += other.times.optimizer_seconds / static_cast<double>(ranks);
        global.gather_bytes += other.gather_bytes;
        global.reduce_bytes += other.reduce_bytes;
        global.optimizer_bytes += other.optimizer_bytes;
        global.memory_peak_bytes = std::max(global.memory_peak_bytes, other.memory_peak_bytes);
        raise_to(global.refresh_failures, other.refresh_failures);
        const std::byte* const logits = all_.data() + static_cast<std::size_t>(rank) * mine_.size() + logits_offset;
        for (std::size_t i = 0; i < max_logits_.size(); ++i) {
            float logit = 0.0F;
            std::memcpy(&logit, logits + i * sizeof logit, sizeof logit);
            max_logits_[i] = std::max(max_logits_[i], logit);
        }
    }
    global.loss = sum_in_order(micro_batches_, ranks, [&](std::int64_t rank, std::int64_t i) {
        MicroBatchLoss loss;
        std::memcpy(&loss,
                    all_.data() + static_cast<std::size_t>(rank) * mine_.size() + sizeof(Header) +
                        static_cast<std::size_t>(i) * sizeof loss,
                    sizeof loss);
        return loss;
    });
    return global;
}

GlobalFacts RehearsedAgreement::exchange(const LocalFacts& local) {
    GlobalFacts global;
    const auto targets = static_cast<double>(targets_);
    global.squares.add(targets * targets * 1e6);
    global.loss = {targets, targets, targets_};
    global.longest = local.times;
    global.mean_optimizer_seconds = local.times.optimizer_seconds;
    global.gather_bytes = local.bytes_sent_gather;
    global.reduce_bytes = local.bytes_sent_reduce;
    global.optimizer_bytes = local.bytes_sent_optimizer;
    global.memory_peak_bytes = local.memory_peak_bytes;
    global.max_logits = local.max_logits;
    return global;
}

}  // namespace mfsdp::runtime
