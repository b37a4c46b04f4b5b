#include "mfsdp/base/error.h"
#include "mfsdp/comm/builders/builders.h"
#include "mfsdp/comm/executor.h"
#include "mfsdp/device/cpu_device.h"

#include "support/catch.h"
#include "support/delayed_communicator.h"
#include "support/movement_cases.h"
#include "support/movement_data.h"
#include "support/random_order_executor.h"

#include <atomic>
#include <optional>

namespace {

using namespace mfsdp;
using namespace mfsdp::comm;

enum class Kind { threads, delayed, random_order, self };

struct Setup {
    Kind kind = Kind::threads;
    GatherAlgorithm algorithm = GatherAlgorithm::direct;
    std::int64_t chunk_bytes = 12;
    std::uint64_t seed = 1;
    SumAlgorithm sum = SumAlgorithm::direct;
};

struct Comparison {
    std::int64_t compared = 0;
    std::int64_t wrong = 0;
};

TransferSchedule build(const Movement& movement, const Setup& setup, int rank) {
    return movement.combine == Combine::sum ? build_sum(setup.sum, movement, rank, {setup.chunk_bytes})
                                            : build_gather(setup.algorithm, movement, rank, {setup.chunk_bytes});
}

// One rank: three runs, the first on the gather lane; what was counted must be what was planned.
Comparison run_rank(const Movement& movement, const TransferSchedule& schedule, int rank, device::Device& device,
                    Executor& executor) {
    Comparison result;
    test::MovementData data(device, movement, rank, schedule.scratch_bytes);
    for (int repeat = 0; repeat < 3; ++repeat) {
        data.fill();
        executor.start(schedule, repeat == 0 ? Lane::gather : Lane::reduce, data.buffers(), {}).wait();
        result.wrong += data.wrong_elements();
        result.compared += data.compared_elements();
    }
    const TransferTotals totals = executor.totals();
    const bool counted = totals.bytes_sent[0] == schedule.bytes_sent() &&
                         totals.bytes_sent[1] == 2 * schedule.bytes_sent() &&
                         totals.bytes_received[0] == schedule.bytes_received() &&
                         totals.bytes_received[1] == 2 * schedule.bytes_received() && totals.transfers[0] == 1 &&
                         totals.transfers[1] == 2;
    executor.reset_totals();
    if (!counted || executor.totals().transfers[1] != 0) ++result.wrong;
    return result;
}

// All ranks as threads, over real memory that only host_address() can reach.
Comparison run(const Movement& movement, const Setup& setup) {
    std::atomic<std::int64_t> compared{0};
    std::atomic<std::int64_t> wrong{0};
    ThreadCluster cluster(movement.ranks());
    test::RandomOrderHub hub(movement.ranks(), setup.seed);
    cluster.run([&](Communicator& communicator) {
        const int rank = communicator.rank();
        device::CpuDeviceOptions options;
        options.guard_addresses = setup.kind != Kind::self;
        const std::unique_ptr<device::Device> cpu = device::make_cpu_device(options);
        test::DelayedCommunicator delayed(communicator, [&](const Message& message) {
            return 1e-4 * static_cast<double>((message.bytes + message.peer + rank) % 5);
        });
        std::unique_ptr<Executor> executor;
        switch (setup.kind) {
            case Kind::threads:
                executor = make_progress_executor(communicator, *cpu, {20.0});
                break;
            case Kind::delayed:
                executor = make_progress_executor(delayed, *cpu, {20.0});
                break;
            case Kind::random_order:
                executor = hub.make_executor(rank, *cpu);
                break;
            case Kind::self:
                executor = make_self_executor(*cpu);
                break;
        }
        const Comparison result = run_rank(movement, build(movement, setup, rank), rank, *cpu, *executor);
        compared += result.compared;
        wrong += result.wrong;
    });
    return {compared, wrong};
}

// Every shape as a gather by both builders and as sums; returns how many elements were compared.
std::int64_t check_all_shapes(int ranks, Setup setup) {
    std::int64_t compared = 0;
    const auto check = [&](const Movement& movement) {
        const Comparison result = run(movement, setup);
        CHECK(result.wrong == 0);
        compared += result.compared;
        ++setup.seed;
    };
    for (const test::GroupShape& shape : test::group_shapes(ranks)) {
        INFO(ranks << " ranks, " << shape.describe() << ", seed " << setup.seed);
        for (const GatherAlgorithm algorithm : {GatherAlgorithm::direct, GatherAlgorithm::ring}) {
            setup.algorithm = algorithm;
            check(test::gather_movement(shape));
        }
        for (const bool accumulate : {false, true}) {
            setup.sum = SumAlgorithm::direct;
            check(test::sum_movement(shape, (ranks + 1) / 2, accumulate));
            check(test::sum_movement(shape, ranks, accumulate));
            check(test::replicated_sum_movement(shape, ranks, accumulate));
            setup.sum = SumAlgorithm::grouped;
            check(test::sum_movement(shape, ranks, accumulate));
        }
    }
    return compared;
}

}  // namespace

TEST_CASE("the values of these tests have other sums in another order") {
    const Movement movement = test::sum_movement(test::group_shapes(5)[4], 5, false);
    std::int64_t differing = 0;
    for (std::int64_t g = 0; g < 100; ++g) {
        float backwards = test::value_of(4, g);
        for (int c = 3; c >= 0; --c) backwards += test::value_of(c, g);
        differing += backwards == test::expected_value(movement, g) ? 0 : 1;
    }
    CHECK(differing > 30);
}

TEST_CASE("threads: gathers are exact and sums have the bits of one rank adding in order") {
    for (const int ranks : {1, 2, 3, 5, 8}) CHECK(check_all_shapes(ranks, {Kind::threads}) > 50);
}

TEST_CASE("threads with slow messages: the same bits") {
    for (const int ranks : {2, 3}) CHECK(check_all_shapes(ranks, {Kind::delayed}) > 50);
}

TEST_CASE("random order of all operations: the same bits") {
    for (const int ranks : {1, 2, 3, 5}) CHECK(check_all_shapes(ranks, {Kind::random_order}) > 50);
}

TEST_CASE("self executor: one rank copies and adds as device operations, with the same bits") {
    CHECK(check_all_shapes(1, {Kind::self}) > 50);
}

TEST_CASE("random layouts and bfloat16 leaves give the same bits on threads, in random order and on one rank alone") {
    std::int64_t compared = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        const int ranks = 1 + static_cast<int>(seed % 5);
        INFO("seed " << seed);
        for (const Kind kind : {Kind::threads, Kind::random_order, Kind::self}) {
            if (kind == Kind::self && ranks > 1) continue;
            const Comparison copy =
                run(test::random_copy_movement(ranks, seed), {kind, GatherAlgorithm::direct, 12, seed});
            Movement sum = test::random_sum_movement(ranks, ranks, seed % 2 == 0, seed);
            if (seed % 3 == 0) sum.dtype = device::DType::bfloat16;
            const Comparison added = run(sum, {kind, GatherAlgorithm::direct, 12, seed});
            CHECK(copy.wrong == 0);
            CHECK(added.wrong == 0);
            compared += copy.compared + added.compared;
        }
    }
    CHECK(compared > 1000);
}

TEST_CASE("progress executor: schedules of one lane keep their order, lanes run at once, starts never block") {
    constexpr int kRanks = 3;
    constexpr int kRepeats = 40;
    test::GroupShape shape;
    shape.sizes = {{9}, {0}, {31}};
    const Movement gather = test::gather_movement(shape);
    const Movement sum = test::sum_movement(shape, kRanks, true);
    std::atomic<std::int64_t> wrong{0};
    std::atomic<std::int64_t> compared{0};
    ThreadCluster cluster(kRanks);
    cluster.run([&](Communicator& communicator) {
        const int rank = communicator.rank();
        const auto cpu = device::make_cpu_device({});
        const TransferSchedule gathering = build_ring_gather(gather, rank, {8});
        const TransferSchedule summing = build_direct_sum(sum, rank, {8});
        test::MovementData gathered(*cpu, gather, rank, 0);
        test::MovementData summed(*cpu, sum, rank, summing.scratch_bytes);
        device::HostTimeline go;  // outlives the executor, which looks at it
        const auto executor = make_progress_executor(communicator, *cpu, {20.0});
        // Ranks start the lanes in different orders: only the order within a lane counts.
        std::vector<device::Event> ends;
        for (int repeat = 0; repeat < kRepeats; ++repeat) {
            const device::Event ready{&go, 1};
            if (rank != 1) ends.push_back(executor->start(gathering, Lane::gather, gathered.buffers(), ready));
            ends.push_back(executor->start(summing, Lane::reduce, summed.buffers(), ready));
            if (rank == 1) ends.push_back(executor->start(gathering, Lane::gather, gathered.buffers(), ready));
        }
        for (const device::Event& end : ends) wrong += end.done() ? 1 : 0;  // nothing before `ready`
        go.advance(1);
        for (const device::Event& end : ends) end.wait();
        wrong += gathered.wrong_elements();
        compared += gathered.compared_elements();
        // The same leaves forty times on top of each other, one after the other.
        for (const Piece& piece : sum.to.pieces[static_cast<std::size_t>(rank)]) {
            for (std::int64_t i = 0; i < piece.count; ++i) {
                float expected = test::value_of(-2, piece.group_offset + i);
                for (int repeat = 0; repeat < kRepeats; ++repeat) {
                    for (int c = 0; c < kRanks; ++c) expected += test::value_of(c, piece.group_offset + i);
                }
                const auto* held = reinterpret_cast<const float*>(summed.buffers()[BufferRole::accumulator]);
                wrong += held[piece.local_offset + i] == expected ? 0 : 1;
                ++compared;
            }
        }
    });
    CHECK(wrong == 0);
    CHECK(compared == 31 + 9 + 40 + 40);
}

TEST_CASE("self executor: waits for the ready event and has no peers") {
    device::CpuDeviceOptions options;
    options.asynchronous_streams = true;
    const auto cpu = device::make_cpu_device(options);
    const Movement movement = test::gather_movement(test::group_shapes(1)[7]);
    const TransferSchedule schedule = build_direct_gather(movement, 0, {});
    test::MovementData data(*cpu, movement, 0, 0);
    device::HostTimeline go;
    const auto executor = make_self_executor(*cpu);
    const device::Event end = executor->start(schedule, Lane::gather, data.buffers(), {&go, 1});
    CHECK_FALSE(end.done());
    go.advance(1);
    end.wait();
    CHECK(data.wrong_elements() == 0);
    CHECK(data.compared_elements() == 30);

    TransferSchedule message;
    TransferOperation send;
    send.kind = OperationKind::send;
    send.count = 1;
    send.peer = 1;
    message.channels = {Channel{{Round{{send}}}}};
    CHECK_THROWS_AS(executor->start(message, Lane::gather, data.buffers(), {}), InternalError);
    CHECK_THROWS_AS(executor->start(schedule, Lane::gather, {}, {}), InternalError);  // no buffers bound
}

TEST_CASE("counting executor: exact bytes, modelled times that queue on their lane and start at ready") {
    const Movement movement = test::gather_movement(test::group_shapes(4)[4]);
    const TransferSchedule schedule = build_ring_gather(movement, 1, {16});
    const Mesh mesh = Mesh::single_node(4);
    const LinkModel links;
    const double seconds = links.seconds(schedule, 1, mesh);
    REQUIRE(seconds > 0.0);
    const auto executor = make_counting_executor(1, mesh, links);
    const device::Event first = executor->start(schedule, Lane::gather, {}, {nullptr, 0, 2.0});
    const device::Event second = executor->start(schedule, Lane::gather, {}, {nullptr, 0, 1.0});
    const device::Event other = executor->start(schedule, Lane::reduce, {}, {});
    CHECK(first.done());
    CHECK(first.modelled_seconds == Approx(2.0 + seconds));
    CHECK(second.modelled_seconds == Approx(2.0 + 2.0 * seconds));
    CHECK(other.modelled_seconds == Approx(seconds));
    const TransferTotals totals = executor->totals();
    CHECK(totals.bytes_sent == std::array<std::int64_t, 2>{2 * schedule.bytes_sent(), schedule.bytes_sent()});
    CHECK(totals.bytes_received ==
          std::array<std::int64_t, 2>{2 * schedule.bytes_received(), schedule.bytes_received()});
    CHECK(totals.transfers == std::array<std::int64_t, 2>{2, 1});
    executor->reset_totals();
    CHECK(executor->totals().bytes_sent[0] == 0);
}
