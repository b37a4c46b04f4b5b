#include "mfsdp/base/error.h"
#include "mfsdp/comm/builders/builders.h"
#include "mfsdp/comm/executor.h"
#include "mfsdp/device/cpu_device.h"

#include "support/catch.h"
#include "support/delayed_communicator.h"
#include "support/movement_cases.h"
#include "support/movement_data.h"

#include <array>
#include <chrono>
#include <thread>

namespace {

using namespace mfsdp;
using namespace mfsdp::comm;

// Sums and gathers over and over until something fails.
void work_for_ever(Communicator& communicator, double timeout_seconds) {
    test::GroupShape shape;
    for (int rank = 0; rank < communicator.size(); ++rank) shape.sizes.push_back({100 + rank});
    const Movement movement = test::sum_movement(shape, communicator.size(), true);
    const auto cpu = device::make_cpu_device({});
    TransferSchedule schedule = build_direct_sum(movement, communicator.rank(), {64});
    schedule.name = "reduce block 3";
    test::MovementData data(*cpu, movement, communicator.rank(), schedule.scratch_bytes);
    const auto executor = make_progress_executor(communicator, *cpu, {timeout_seconds});
    for (;;) executor->start(schedule, Lane::reduce, data.buffers(), {}).wait();
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("a rank that throws ends all others within seconds, and run() rethrows its exception") {
    const auto begin = std::chrono::steady_clock::now();
    for (const int failing : {0, 2, 3}) {
        ThreadCluster cluster(4);
        CHECK_THROWS_WITH(cluster.run([&](Communicator& communicator) {
            if (communicator.rank() == failing) {
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                throw DataError("data: tokens.bin: broken");
            }
            work_for_ever(communicator, 600.0);
        }),
                          "data: tokens.bin: broken");
        CHECK_THROWS_AS(cluster.run([](Communicator& communicator) { work_for_ever(communicator, 600.0); }),
                        CommunicationError);  // dead for good
    }
    CHECK(seconds_since(begin) < 10.0);
}

TEST_CASE("a rank that throws while others wait in a host exchange ends them too") {
    ThreadCluster cluster(3);
    CHECK_THROWS_WITH(cluster.run([](Communicator& communicator) {
        if (communicator.rank() == 1) throw NumericalError("step 7: too many skips");
        const std::byte mine{1};
        std::array<std::byte, 3> all{};
        communicator.all_gather({&mine, 1}, all);
    }),
                      "step 7: too many skips");
}

TEST_CASE("abort ends all ranks of a thread cluster with CommunicationError") {
    ThreadCluster cluster(3);
    CHECK_THROWS_WITH(cluster.run([](Communicator& communicator) {
        if (communicator.rank() == 2) communicator.abort(5);
        work_for_ever(communicator, 600.0);
    }),
                      Catch::Contains("rank 2 aborted with exit code 5"));
}

TEST_CASE("a peer that never sends: the timeout names schedule, channel, round, peer and bytes") {
    const auto begin = std::chrono::steady_clock::now();
    std::string error;
    ThreadCluster cluster(2);
    cluster.run([&](Communicator& communicator) {
        if (communicator.rank() == 1) return;  // ends without a word
        try {
            work_for_ever(communicator, 0.2);
        } catch (const CommunicationError& failure) {
            error = failure.what();
        }
    });
    CHECK_THAT(error, Catch::StartsWith("comm: reduce lane: no progress of 'reduce block 3' for 0.2"));
    CHECK_THAT(error, Catch::Contains("on rank 0"));
    // 101 elements of rank 1's part go out in chunks of 64 bytes; the owner's channel waits for its first leaf.
    CHECK_THAT(error, Catch::Contains("channel 0: round 0 waits to send 64 bytes to rank 1 (one of 7 messages with "
                                      "404 bytes outstanding)"));
    CHECK_THAT(error, Catch::Contains("channel 1: round 0 waits to receive 64 bytes from rank 1"));
    CHECK(seconds_since(begin) < 5.0);
}

TEST_CASE("a failed executor fails both lanes, and later starts too") {
    ThreadCluster cluster(2);
    cluster.run([&](Communicator& communicator) {
        if (communicator.rank() == 1) return;
        const auto cpu = device::make_cpu_device({});
        const Movement movement = test::gather_movement(test::group_shapes(2)[1]);
        const TransferSchedule schedule = build_direct_gather(movement, 0, {});
        test::MovementData data(*cpu, movement, 0, 0);
        const auto executor = make_progress_executor(communicator, *cpu, {0.05});
        const device::Event first = executor->start(schedule, Lane::gather, data.buffers(), {});
        const device::Event second = executor->start(schedule, Lane::gather, data.buffers(), {});
        CHECK_THROWS_AS(first.wait(), CommunicationError);
        CHECK_THROWS_AS(second.wait(), CommunicationError);
        CHECK_THROWS_AS(executor->start(schedule, Lane::reduce, data.buffers(), {}).wait(), CommunicationError);
    });
}

TEST_CASE("a ready event that failed fails the transfer with the same exception") {
    ThreadCluster cluster(1);
    const auto cpu = device::make_cpu_device({});
    const Movement movement = test::gather_movement(test::group_shapes(1)[7]);
    const TransferSchedule schedule = build_direct_gather(movement, 0, {});
    test::MovementData data(*cpu, movement, 0, 0);
    device::HostTimeline work;
    const auto executor = make_progress_executor(cluster.rank(0), *cpu, {});
    const device::Event end = executor->start(schedule, Lane::gather, data.buffers(), {&work, 1});
    work.fail(std::make_exception_ptr(DataError("data: broken")));
    CHECK_THROWS_WITH(end.wait(), "data: broken");
}

TEST_CASE("waiting for ready is no lack of progress: the timeout counts from there") {
    const auto cpu = device::make_cpu_device({});
    ThreadCluster cluster(1);
    const Movement movement = test::gather_movement(test::group_shapes(1)[7]);
    const TransferSchedule schedule = build_direct_gather(movement, 0, {});
    test::MovementData data(*cpu, movement, 0, 0);
    device::HostTimeline work;
    const auto executor = make_progress_executor(cluster.rank(0), *cpu, {0.02});
    const device::Event end = executor->start(schedule, Lane::gather, data.buffers(), {&work, 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    work.advance(1);
    CHECK_NOTHROW(end.wait());
    CHECK(data.wrong_elements() == 0);
}

TEST_CASE("destroying an executor abandons what has not ended, without touching memory any more") {
    ThreadCluster cluster(2);
    std::vector<std::byte> memory(16, std::byte{1});
    cluster.run([&](Communicator& communicator) {
        if (communicator.rank() == 0) {
            const auto cpu = device::make_cpu_device({});
            const Movement movement = test::gather_movement(test::group_shapes(2)[1]);
            const TransferSchedule schedule = build_direct_gather(movement, 0, {});
            test::MovementData data(*cpu, movement, 0, 0);
            const auto executor = make_progress_executor(communicator, *cpu, {});
            (void)executor->start(schedule, Lane::gather, data.buffers(), {});
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        const std::byte mine{};
        std::array<std::byte, 2> all{};
        communicator.all_gather({&mine, 1}, all);
        if (communicator.rank() == 1) {
            // Would meet the abandoned receive.
            const auto request = communicator.post_send({0, Lane::gather, 1, memory.data(), 4});
            CHECK_FALSE(communicator.test(request));
            communicator.cancel(request);
        }
    });
}

TEST_CASE("abandon gives up a transfer under way, tells its waiters and is nothing where all has ended") {
    ThreadCluster cluster(2);
    cluster.run([&](Communicator& communicator) {
        const auto cpu = device::make_cpu_device({});
        const Movement movement = test::gather_movement(test::group_shapes(2)[1]);
        const TransferSchedule schedule = build_direct_gather(movement, communicator.rank(), {});
        test::MovementData data(*cpu, movement, communicator.rank(), 0);
        const auto executor = make_progress_executor(communicator, *cpu, {});
        executor->start(schedule, Lane::gather, data.buffers(), {}).wait();
        executor->abandon();
        const device::Event again = executor->start(schedule, Lane::gather, data.buffers(), {});
        again.wait();
        CHECK(data.wrong_elements() == 0);
        const std::byte mine{};
        std::array<std::byte, 2> all{};
        communicator.all_gather({&mine, 1}, all);
        if (communicator.rank() == 0) {
            const device::Event alone = executor->start(schedule, Lane::gather, data.buffers(), {});
            executor->abandon();
            CHECK_THROWS_AS(alone.wait(), CommunicationError);
            CHECK_THROWS_AS(executor->start(schedule, Lane::reduce, data.buffers(), {}).wait(), CommunicationError);
        }
        communicator.all_gather({&mine, 1}, all);
    });
}
