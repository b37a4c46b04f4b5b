#include "mfsdp/runtime/train/capacity.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

namespace mfsdp::runtime {

namespace {

/// Whether all ranks fit; gives up at the first that does not, beginning with the likeliest.
bool every_rank_fits(const RunPlan& run, const TrainConfig& config, std::int64_t limit_bytes) {
    const std::vector<RankLoad> loads = rank_loads(
        run.plan, {run.spec, run.roles, run.costs, run.mesh, config.parallel.strategy, config.parallel.planner});
    std::vector<int> order(loads.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
        return loads[static_cast<std::size_t>(a)].bytes > loads[static_cast<std::size_t>(b)].bytes;
    });
    return std::all_of(order.begin(), order.end(),
                       [&](int rank) { return rehearse(run, rank).total_memory() <= limit_bytes; });
}

bool fits_on(const TrainConfig& config, std::int64_t ranks, std::int64_t limit_bytes) {
    return every_rank_fits(plan_for_ranks(config, ranks), config, limit_bytes);
}

}  // namespace

std::vector<Rehearsal> rehearse_all(const RunPlan& run) {
    std::vector<Rehearsal> results(static_cast<std::size_t>(run.plan.ranks));
    std::atomic<int> next{0};
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&] {
        for (int rank = next++; rank < run.plan.ranks; rank = next++) {
            try {
                results[static_cast<std::size_t>(rank)] = rehearse(run, rank);
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!failure) failure = std::current_exception();
                next = run.plan.ranks;
            }
        }
    };
    {
        const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
        std::vector<std::jthread> threads;
        for (int i = 1; i < std::min(cores, run.plan.ranks); ++i) threads.emplace_back(work);
        work();
    }
    if (failure) std::rethrow_exception(failure);
    return results;
}

RunPlan plan_for_ranks(TrainConfig config, std::int64_t ranks) {
    config.parallel.mesh.shard = ranks / config.parallel.mesh.replicate;
    RunPlan run = make_run_plan(config, std::vector<int>(static_cast<std::size_t>(ranks), 0));
    choose_transfers(run);
    return run;
}

Fit fit(const std::vector<Rehearsal>& ranks, std::int64_t limit_bytes) {
    MFSDP_ASSERT(!ranks.empty(), "a run has ranks");
    Fit result{.limit_bytes = limit_bytes};
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const std::int64_t bytes = ranks[rank].total_memory();
        if (bytes > limit_bytes) ++result.ranks_beyond;
        if (bytes <= result.largest_bytes) continue;
        result.largest_bytes = bytes;
        result.largest_rank = static_cast<int>(rank);
    }
    return result;
}

std::optional<MicroBatchFit> largest_micro_batch(const TrainConfig& config, std::int64_t ranks,
                                                 std::int64_t limit_bytes) {
    const std::int64_t global = config.train.global_batch_size;
    // Downwards, not by halving: with fewer micro-batches than ranks the memory need not grow with their size.
    for (std::int64_t count = 1; count <= global; ++count) {
        if (global % count != 0) continue;
        TrainConfig candidate = config;
        candidate.train.micro_batch_size = global / count;
        const RunPlan run = plan_for_ranks(candidate, ranks);
        if (!every_rank_fits(run, candidate, limit_bytes)) continue;
        return MicroBatchFit{candidate.train.micro_batch_size, fit(rehearse_all(run), limit_bytes)};
    }
    return std::nullopt;
}

std::optional<RanksFit> fewest_ranks(const TrainConfig& config, std::int64_t limit_bytes, std::int64_t most_ranks) {
    const std::int64_t replicas = config.parallel.mesh.replicate;
    // Rank 0 has a micro-batch whatever the number of ranks, and it takes the same activations everywhere.
    const auto activations = static_cast<std::size_t>(device::MemoryCategory::activations);
    if (rehearse(plan_for_ranks(config, replicas), 0).memory[activations] > limit_bytes) return std::nullopt;

    // In shard groups, since replicas hold the same.
    const std::int64_t most = most_ranks / replicas;
    std::int64_t fitting = 1, failing = 0;
    while (fitting <= most && !fits_on(config, fitting * replicas, limit_bytes)) {
        failing = fitting;
        fitting = std::max(fitting + 1, std::min(2 * fitting, most));
    }
    if (fitting > most) return std::nullopt;
    while (fitting - failing > 1) {
        const std::int64_t middle = failing + (fitting - failing) / 2;
        (fits_on(config, middle * replicas, limit_bytes) ? fitting : failing) = middle;
    }
    const std::int64_t ranks = fitting * replicas;
    return RanksFit{ranks, fit(rehearse_all(plan_for_ranks(config, ranks)), limit_bytes)};
}

}  // namespace mfsdp::runtime
