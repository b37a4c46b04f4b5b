#include "support/catch.h"
#include "support/delayed_communicator.h"
#include "support/training_run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

// While unit u computes, the transfer of u + 1 is in flight. Each gather is made to last at least 50 ms and each task
// of a stream at least 1 ms; then with prefetching tasks of the compute stream start while a gather lasts, and without
// it none do, on a machine of any speed: what waits for a gather cannot start before its end.

using namespace mfsdp;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kGather(50);
constexpr std::chrono::milliseconds kTask(1);

/// When rank 0 posted its gathers, and when each of its streams started its tasks.
struct Diary {
    std::mutex mutex;
    std::vector<Clock::time_point> gathers;
    std::array<std::vector<Clock::time_point>, 8> tasks;

    /// Tasks of the busiest stream, which computes, that started during each gather.
    [[nodiscard]] std::vector<std::int64_t> tasks_during_gathers() const {
        const auto& compute = *std::max_element(
            tasks.begin(), tasks.end(), [](const auto& left, const auto& right) { return left.size() < right.size(); });
        std::vector<std::int64_t> counts;
        for (const Clock::time_point begin : gathers) {
            const auto first = std::lower_bound(compute.begin(), compute.end(), begin);
            counts.push_back(std::lower_bound(first, compute.end(), begin + kGather) - first);
        }
        return counts;
    }
};

/// Tasks that a rank computed during each of its gathers, three steps long.
std::vector<std::int64_t> overlap(std::int64_t prefetch_units) {
    test::TrainingCase c;
    c.model = test::uneven_llama();
    c.model.num_hidden_layers = 4;
    c.device.asynchronous_streams = true;
    c.ranks = 2;
    c.micro_batches = 2;
    c.strategy = runtime::Strategy::matrix_fsdp;
    c.gather = runtime::GatherAlgorithm::direct;
    c.chunk_bytes = std::int64_t{1} << 26;  // one message per gather
    c.prefetch_units = prefetch_units;
    const runtime::RunPlan run = test::training_plan(c);
    Diary diary;
    comm::ThreadCluster cluster(c.ranks);
    cluster.run([&](comm::Communicator& inner) {
        const bool writes = inner.rank() == 0;
        test::DelayedCommunicator communicator(inner, [&](const comm::Message& message) {
            if (message.lane != comm::Lane::gather) return 0.0;
            if (writes && message.peer == 1) {
                const std::lock_guard lock(diary.mutex);
                diary.gathers.push_back(Clock::now());
            }
            return std::chrono::duration<double>(kGather).count();
        });
        device::CpuDeviceOptions options = c.device;
        options.before_task = [&](std::size_t stream) {
            std::this_thread::sleep_for(kTask);
            if (!writes) return;
            const std::lock_guard lock(diary.mutex);
            diary.tasks.at(stream).push_back(Clock::now());
        };
        test::RankRun rank_run(run, communicator, options);
        runtime::Engine& engine = rank_run.engine;
        engine.weights().initialise(1);
        for (std::int64_t step = 1; step <= 3; ++step) {
            engine.step(step, 1.0,
                        [&](std::int64_t micro_batch, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
                            test::fill_tokens(c, step, micro_batch, inputs, targets);
                        });
            engine.compute().synchronize();
        }
    });
    return diary.tasks_during_gathers();
}

}  // namespace

TEST_CASE("with prefetching units compute while others are gathered and without it hardly any does", "[slow]") {
    // One task that waits for the gather starts at once. Without prefetching the loss and the embedding's gradient
    // still have gathers beside them that they do not wait for.
    const auto computing = [](const std::vector<std::int64_t>& counts) {
        return std::count_if(counts.begin(), counts.end(), [](std::int64_t tasks) { return tasks > 1; });
    };
    const std::vector<std::int64_t> alone = overlap(0);
    const std::vector<std::int64_t> ahead = overlap(1);
    REQUIRE(alone.size() >= 27);
    REQUIRE(ahead.size() >= 27);
    INFO("gathers with tasks beside them: without prefetching "
         << computing(alone) << " of " << alone.size() << ", with " << computing(ahead) << " of " << ahead.size());
    CHECK(computing(alone) * 8 <= static_cast<std::int64_t>(alone.size()));
    CHECK(computing(ahead) * 3 >= static_cast<std::int64_t>(ahead.size()));
}
