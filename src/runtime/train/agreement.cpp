#include "mfsdp/runtime/train/agreement.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <cstring>

namespace mfsdp::runtime {

namespace {

/// The fixed part of a rank's message; its micro-batch losses follow.
struct Header {
    ExactSum squares;
    std::int64_t nonfinite_rows = 0;
    StepTimes times;
    std::int64_t gather_bytes = 0, reduce_bytes = 0, optimizer_bytes = 0;
    std::int64_t memory_peak_bytes = 0;
};

void raise_to(StepTimes& longest, const StepTimes& times) {
    const auto raise = [](double& a, double b) { a = std::max(a, b); };
    raise(longest.data_seconds, times.data_seconds);
    raise(longest.forward_seconds, times.forward_seconds);
    raise(longest.backward_seconds, times.backward_seconds);
    raise(longest.optimizer_seconds, times.optimizer_seconds);
    raise(longest.exposed_communication_seconds, times.exposed_communication_seconds);
    raise(longest.step_seconds, times.step_seconds);
}

}  // namespace

RankAgreement::RankAgreement(comm::Communicator& communicator, std::int64_t micro_batches)
    : communicator_(communicator),
      micro_batches_(micro_batches),
      losses_per_rank_((micro_batches + communicator.size() - 1) / communicator.size()),
      mine_(sizeof(Header) + static_cast<std::size_t>(losses_per_rank_) * sizeof(MicroBatchLoss)),
      all_(mine_.size() * static_cast<std::size_t>(communicator.size())) {}

GlobalFacts RankAgreement::exchange(const LocalFacts& local) {
    MFSDP_ASSERT(static_cast<std::int64_t>(local.losses.size()) <= losses_per_rank_, "one loss per micro-step");
    const Header header{local.squares,           local.nonfinite_rows,    local.times,
                        local.bytes_sent_gather, local.bytes_sent_reduce, local.bytes_sent_optimizer,
                        local.memory_peak_bytes};
    std::fill(mine_.begin(), mine_.end(), std::byte{0});
    std::memcpy(mine_.data(), &header, sizeof header);
    if (!local.losses.empty()) {
        std::memcpy(mine_.data() + sizeof header, local.losses.data(), local.losses.size_bytes());
    }
    communicator_.all_gather(mine_, all_);

    GlobalFacts global;
    const auto ranks = static_cast<std::int64_t>(communicator_.size());
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        Header other;
        std::memcpy(&other, all_.data() + static_cast<std::size_t>(rank) * mine_.size(), sizeof other);
        global.squares.add(other.squares);
        global.nonfinite_rows += other.nonfinite_rows;
        raise_to(global.longest, other.times);
        global.mean_optimizer_seconds += other.times.optimizer_seconds / static_cast<double>(ranks);
        global.gather_bytes += other.gather_bytes;
        global.reduce_bytes += other.reduce_bytes;
        global.optimizer_bytes += other.optimizer_bytes;
        global.memory_peak_bytes = std::max(global.memory_peak_bytes, other.memory_peak_bytes);
    }
    // In micro-batch order, not rank order: the sum must have the same bits for every number of ranks.
    for (std::int64_t micro_batch = 0; micro_batch < micro_batches_; ++micro_batch) {
        const std::byte* const of_rank = all_.data() + static_cast<std::size_t>(micro_batch % ranks) * mine_.size();
        MicroBatchLoss loss;
        std::memcpy(&loss, of_rank + sizeof(Header) + static_cast<std::size_t>(micro_batch / ranks) * sizeof loss,
                    sizeof loss);
        global.loss_sum += loss.sum;
        global.targets += loss.targets;
    }
    return global;
}

GlobalFacts RehearsedAgreement::exchange(const LocalFacts& local) {
    GlobalFacts global;
    const auto targets = static_cast<double>(targets_);
    global.squares.add(targets * targets * 1e6);
    global.targets = targets_;
    global.loss_sum = targets;
    global.longest = local.times;
    global.mean_optimizer_seconds = local.times.optimizer_seconds;
    global.gather_bytes = local.bytes_sent_gather;
    global.reduce_bytes = local.bytes_sent_reduce;
    global.optimizer_bytes = local.bytes_sent_optimizer;
    global.memory_peak_bytes = local.memory_peak_bytes;
    return global;
}

}  // namespace mfsdp::runtime
