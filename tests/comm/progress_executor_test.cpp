#include "mfsdp/comm/builders/builders.h"
#include "mfsdp/comm/executor.h"
#include "mfsdp/device/cpu_device.h"

#include "support/catch.h"
#include "support/movement_cases.h"
#include "support/movement_data.h"

#include <atomic>

namespace {

using namespace mfsdp;
using namespace mfsdp::comm;

TransferSchedule build(const Movement& movement, GatherAlgorithm algorithm, int rank, const BuildOptions& options) {
    return movement.combine == Combine::sum ? build_direct_sum(movement, rank, options)
                                            : build_gather(algorithm, movement, rank, options);
}

struct Comparison {
    std::int64_t compared = 0;
    std::int64_t wrong = 0;
};

// All ranks run the movement three times over real memory, each with a progress thread.
Comparison run_on_threads(const Movement& movement, GatherAlgorithm algorithm, std::int64_t chunk_bytes) {
    std::atomic<std::int64_t> compared{0};
    std::atomic<std::int64_t> wrong{0};
    ThreadCluster cluster(movement.ranks());
    cluster.run([&](Communicator& communicator) {
        const std::unique_ptr<device::Device> cpu = device::make_cpu_device({});
        const TransferSchedule schedule = build(movement, algorithm, communicator.rank(), {chunk_bytes});
        test::MovementData data(*cpu, movement, communicator.rank(), schedule.scratch_bytes);
        const auto executor = make_progress_executor(communicator, *cpu, {20.0});
        for (int repeat = 0; repeat < 3; ++repeat) {
            data.fill();
            executor->start(schedule, repeat == 0 ? Lane::gather : Lane::reduce, data.buffers(), {}).wait();
            wrong += data.wrong_elements();
            compared += data.compared_elements();
        }
        const TransferTotals totals = executor->totals();
        if (totals.bytes_sent[0] != schedule.bytes_sent() || totals.bytes_sent[1] != 2 * schedule.bytes_sent() ||
            totals.bytes_received[0] != schedule.bytes_received() || totals.transfers[1] != 2) {
            ++wrong;
        }
    });
    return {compared, wrong};
}

}  // namespace

TEST_CASE("progress executor: gathers put every element in its place on threads") {
    std::int64_t compared = 0;
    for (const int ranks : {1, 2, 3, 5, 8}) {
        for (const test::GroupShape& shape : test::group_shapes(ranks)) {
            for (const GatherAlgorithm algorithm : {GatherAlgorithm::direct, GatherAlgorithm::ring}) {
                const Comparison result = run_on_threads(test::gather_movement(shape), algorithm, 12);
                INFO(ranks << " ranks, " << shape.describe() << ", " << name(algorithm));
                CHECK(result.wrong == 0);
                compared += result.compared;
            }
        }
    }
    CHECK(compared > 1000);
}

TEST_CASE("progress executor: sums on threads have the bits of one rank adding in order") {
    std::int64_t compared = 0;
    for (const int ranks : {1, 2, 3, 5, 8}) {
        for (const test::GroupShape& shape : test::group_shapes(ranks)) {
            for (const bool accumulate : {false, true}) {
                for (const int contributors : {1, (ranks + 1) / 2, ranks}) {
                    INFO(ranks << " ranks, " << shape.describe() << ", contributors " << contributors);
                    const Comparison owner = run_on_threads(test::sum_movement(shape, contributors, accumulate),
                                                            GatherAlgorithm::direct, 20);
                    CHECK(owner.wrong == 0);
                    compared += owner.compared;
                }
                const Comparison all = run_on_threads(test::replicated_sum_movement(shape, ranks, accumulate),
                                                      GatherAlgorithm::direct, 20);
                CHECK(all.wrong == 0);
                compared += all.compared;
            }
        }
    }
    CHECK(compared > 1000);
}
