#include "support/catch.h"
#include "support/delayed_communicator.h"
#include "support/training_run.h"

#include <algorithm>
#include <chrono>

// While unit u computes, the transfer of u + 1 is in flight. With a transport that delays each gather by 50 ms, a step
// must take less than compute and transfers one after the other; without prefetching it must not.

using namespace mfsdp;

namespace {

constexpr double kDelaySeconds = 0.05;

struct Timing {
    double step_seconds = 1e9;
    std::int64_t gathers = 0;  // of one step
};

Timing time_step(std::int64_t prefetch_units, double delay_seconds) {
    test::TrainingCase c;
    c.model = test::uneven_llama();
    c.model.num_hidden_layers = 4;
    c.device.asynchronous_streams = true;
    c.device.task_microseconds = 1000;  // compute is pauses, so that a busy machine does not disturb the measurement
    c.ranks = 2;
    c.micro_batches = 2;
    c.strategy = runtime::Strategy::matrix_fsdp;
    c.gather = runtime::GatherAlgorithm::direct;
    c.chunk_bytes = std::int64_t{1} << 26;  // one message per gather, so one delay
    c.prefetch_units = prefetch_units;
    const runtime::RunPlan run = test::training_plan(c);
    Timing timing;
    comm::ThreadCluster cluster(c.ranks);
    cluster.run([&](comm::Communicator& inner) {
        test::DelayedCommunicator communicator(inner, [&](const comm::Message& message) {
            return message.lane == comm::Lane::gather ? delay_seconds : 0.0;
        });
        test::RankRun rank_run(run, communicator, c.device);
        runtime::Engine& engine = rank_run.engine;
        engine.weights().initialise(1);
        for (std::int64_t step = 1; step <= 3; ++step) {
            rank_run.executor->reset_totals();
            const auto begin = std::chrono::steady_clock::now();
            engine.step(step, 1.0,
                        [&](std::int64_t micro_batch, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
                            test::fill_tokens(c, step, micro_batch, inputs, targets);
                        });
            engine.compute().synchronize();
            if (communicator.rank() != 0) continue;
            const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            timing.step_seconds = std::min(timing.step_seconds, seconds);
            timing.gathers = rank_run.executor->totals().transfers[0];
        }
    });
    return timing;
}

}  // namespace

TEST_CASE("with prefetching a step is shorter than compute plus transfers and without it is not", "[slow]") {
    const double compute = time_step(0, 0.0).step_seconds;
    const Timing alone = time_step(0, kDelaySeconds);
    const Timing ahead = time_step(1, kDelaySeconds);
    REQUIRE(alone.gathers >= 9);
    const double transfers = static_cast<double>(alone.gathers) * kDelaySeconds;
    INFO("compute " << compute << " s, transfers " << transfers << " s, without prefetching " << alone.step_seconds
                    << " s, with " << ahead.step_seconds << " s");
    CHECK(alone.step_seconds >= transfers + 0.9 * compute);
    CHECK(ahead.step_seconds < alone.step_seconds - 0.25 * std::min(transfers, compute));
    CHECK(ahead.step_seconds < transfers + compute);
}
