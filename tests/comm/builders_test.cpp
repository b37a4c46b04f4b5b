#include "mfsdp/comm/builders/builders.h"

#include "mfsdp/base/error.h"
#include "mfsdp/comm/schedule_checker.h"

#include "support/catch.h"
#include "support/movement_cases.h"

namespace {

using namespace mfsdp;
using namespace mfsdp::comm;

const std::vector<int> kRankCounts{1, 2, 3, 4, 5, 6, 7, 8, 9, 16};

constexpr SumAlgorithm kSums[] = {SumAlgorithm::direct, SumAlgorithm::grouped};

std::vector<TransferSchedule> build_all(const Movement& movement, GatherAlgorithm algorithm, std::int64_t chunk_bytes,
                                        SumAlgorithm sum = SumAlgorithm::direct) {
    std::vector<TransferSchedule> schedules;
    for (int rank = 0; rank < movement.ranks(); ++rank) {
        schedules.push_back(movement.combine == Combine::sum ? build_sum(sum, movement, rank, {chunk_bytes})
                                                             : build_gather(algorithm, movement, rank, {chunk_bytes}));
    }
    return schedules;
}

// Elements of a rank's shard that others want: all of it.
std::int64_t held_elements(const Movement& movement, int rank) {
    std::int64_t count = 0;
    for (const Piece& piece : movement.from.pieces.at(static_cast<std::size_t>(rank))) count += piece.count;
    return count;
}

std::int64_t wanted_elements(const Movement& movement, int rank) {
    std::int64_t count = 0;
    for (const Piece& piece : movement.to.pieces.at(static_cast<std::size_t>(rank))) count += piece.count;
    return count;
}

std::int64_t largest_message(const std::vector<TransferSchedule>& schedules) {
    std::int64_t largest = 0;
    for (const TransferSchedule& schedule : schedules) {
        for (const Channel& channel : schedule.channels) {
            for (const Round& round : channel.rounds) {
                for (const TransferOperation& operation : round.operations) {
                    largest = std::max(largest, operation.count * device::size_of(operation.source_dtype));
                }
            }
        }
    }
    return largest;
}

}  // namespace

TEST_CASE("gather builders: every rank ends with all it wants, for any shape, rank count and chunk") {
    for (const int ranks : kRankCounts) {
        for (const test::GroupShape& shape : test::group_shapes(ranks)) {
            const Movement movement = test::gather_movement(shape);
            for (const GatherAlgorithm algorithm :
                 {GatherAlgorithm::direct, GatherAlgorithm::ring, GatherAlgorithm::broadcast}) {
                for (const std::int64_t chunk_bytes : {4, 20, 4194304}) {
                    INFO(ranks << " ranks, " << shape.describe() << ", " << name(algorithm) << ", " << chunk_bytes);
                    const std::vector<TransferSchedule> schedules = build_all(movement, algorithm, chunk_bytes);
                    CHECK_NOTHROW(check_schedules(movement, schedules));
                    CHECK(largest_message(schedules) <= chunk_bytes);
                }
            }
        }
    }
}

TEST_CASE("direct gather: rank r sends its pieces N - 1 times; ring gather: the pieces of all ranks but r + 1") {
    std::int64_t total = 0;
    for (const int ranks : kRankCounts) {
        for (const test::GroupShape& shape : test::group_shapes(ranks)) {
            const Movement movement = test::gather_movement(shape);
            const std::vector<TransferSchedule> direct = build_all(movement, GatherAlgorithm::direct, 12);
            const std::vector<TransferSchedule> ring = build_all(movement, GatherAlgorithm::ring, 12);
            const std::vector<TransferSchedule> broadcast = build_all(movement, GatherAlgorithm::broadcast, 12);
            std::int64_t all = 0;
            for (int rank = 0; rank < ranks; ++rank) all += held_elements(movement, rank);
            for (int rank = 0; rank < ranks; ++rank) {
                INFO(ranks << " ranks, rank " << rank << ", " << shape.describe());
                const auto index = static_cast<std::size_t>(rank);
                const std::int64_t held = held_elements(movement, rank);
                CHECK(direct[index].bytes_sent() == 4 * held * (ranks - 1));
                CHECK(direct[index].bytes_received() == 4 * (all - held));
                CHECK(ring[index].bytes_sent() == 4 * (all - held_elements(movement, (rank + 1) % ranks)));
                CHECK(ring[index].bytes_received() == 4 * (all - held));
                CHECK(broadcast[index].bytes_sent() == direct[index].bytes_sent());
                CHECK(broadcast[index].bytes_received() == direct[index].bytes_received());
                CHECK(direct[index].scratch_bytes == 0);
                total += ring[index].bytes_sent();
            }
        }
    }
    CHECK(total > 0);
}

TEST_CASE("sums: each leaf is added once and in order, for any shape, contributors and chunk") {
    for (const int ranks : kRankCounts) {
        for (const test::GroupShape& shape : test::group_shapes(ranks)) {
            for (int contributors = 1; contributors <= ranks; contributors += ranks > 9 ? 5 : 1) {
                for (const bool accumulate : {false, true}) {
                    const Movement movement = test::sum_movement(shape, contributors, accumulate);
                    for (const std::int64_t chunk_bytes : {12, 4194304}) {
                        INFO(ranks << " ranks, " << contributors << " contributors, " << shape.describe());
                        for (const SumAlgorithm sum : kSums)
                            CHECK_NOTHROW(check_schedules(movement, build_all(movement, {}, chunk_bytes, sum)));
                    }
                }
            }
        }
    }
}

TEST_CASE("sums: replicated targets get the same sum on every rank") {
    for (const int ranks : {1, 2, 3, 8}) {
        for (const test::GroupShape& shape : test::group_shapes(ranks)) {
            for (const int contributors : {1, ranks}) {
                for (const bool accumulate : {false, true}) {
                    const Movement movement = test::replicated_sum_movement(shape, contributors, accumulate);
                    for (const SumAlgorithm sum : kSums)
                        CHECK_NOTHROW(check_schedules(movement, build_all(movement, {}, 20, sum)));
                }
            }
        }
    }
}

TEST_CASE("direct sum: bytes are one leaf's part per contributor other than the owner") {
    std::int64_t total = 0;
    for (const int ranks : {1, 2, 5, 8}) {
        for (const test::GroupShape& shape : test::group_shapes(ranks)) {
            for (const int contributors : {1, ranks}) {
                const Movement movement = test::sum_movement(shape, contributors, false);
                const std::vector<TransferSchedule> schedules = build_all(movement, {}, 12);
                std::int64_t all = 0;
                for (int rank = 0; rank < ranks; ++rank) all += wanted_elements(movement, rank);
                for (int rank = 0; rank < ranks; ++rank) {
                    const TransferSchedule& schedule = schedules[static_cast<std::size_t>(rank)];
                    const std::int64_t wanted = wanted_elements(movement, rank);
                    const bool contributes = rank < contributors;
                    CHECK(schedule.bytes_sent() == (contributes ? 4 * (all - wanted) : 0));
                    CHECK(schedule.bytes_received() == 4 * wanted * (contributors - (contributes ? 1 : 0)));
                    CHECK(schedule.scratch_bytes <= 2 * 256);  // two chunks of 12 bytes, each on an aligned address
                    total += schedule.bytes_sent();
                }
            }
        }
    }
    CHECK(total > 0);
}

TEST_CASE("grouped sum: one channel, bytes as the direct sum, one chunk of scratch for each contributor") {
    std::int64_t total = 0;
    for (const int ranks : {1, 2, 5, 8}) {
        for (const test::GroupShape& shape : test::group_shapes(ranks)) {
            for (const int contributors : {1, ranks}) {
                const Movement movement = test::sum_movement(shape, contributors, true);
                const std::vector<TransferSchedule> direct = build_all(movement, {}, 12);
                const std::vector<TransferSchedule> grouped = build_all(movement, {}, 12, SumAlgorithm::grouped);
                for (std::size_t rank = 0; rank < grouped.size(); ++rank) {
                    CHECK(grouped[rank].channels.size() <= 1);
                    CHECK(grouped[rank].bytes_sent() == direct[rank].bytes_sent());
                    CHECK(grouped[rank].bytes_received() == direct[rank].bytes_received());
                    CHECK(grouped[rank].scratch_bytes <= 256 * contributors);
                    total += grouped[rank].bytes_sent();
                }
            }
        }
    }
    CHECK(total > 0);
}

TEST_CASE("direct builders: random pieces in random layouts end where they must") {
    std::int64_t moved = 0;
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
        const int ranks = 1 + static_cast<int>(seed % 7);
        INFO("seed " << seed);
        const Movement copy = test::random_copy_movement(ranks, seed);
        const std::vector<TransferSchedule> copies = build_all(copy, GatherAlgorithm::direct, 12);
        CHECK_NOTHROW(check_schedules(copy, copies));
        const int contributors = 1 + static_cast<int>(seed % static_cast<std::uint64_t>(ranks));
        const Movement sum = test::random_sum_movement(ranks, contributors, seed % 2 == 0, seed);
        for (const SumAlgorithm algorithm : kSums)
            CHECK_NOTHROW(check_schedules(sum, build_all(sum, {}, 12, algorithm)));
        for (const TransferSchedule& schedule : copies) moved += schedule.bytes_sent();
    }
    CHECK(moved > 0);
}

TEST_CASE("sums: bfloat16 leaves travel in bfloat16 and add up in float32") {
    for (const bool accumulate : {false, true}) {
        Movement movement = test::sum_movement(test::group_shapes(3)[4], 3, accumulate);
        movement.dtype = device::DType::bfloat16;
        for (const SumAlgorithm sum : kSums) {
            const std::vector<TransferSchedule> schedules = build_all(movement, {}, 8, sum);
            CHECK_NOTHROW(check_schedules(movement, schedules));
            CHECK(schedules[0].bytes_received() == 2 * 2 * wanted_elements(movement, 0));
            CHECK(schedules[0].bytes_received() > 0);
        }
    }
}

TEST_CASE("ring gather: refuses movements that it cannot serve, naming the way out") {
    Movement movement = test::gather_movement(test::group_shapes(3)[4]);
    movement.to.pieces[1].clear();  // rank 1 wants nothing
    CHECK_THROWS_AS(build_ring_gather(movement, 0, {}), ConfigError);
    CHECK_THROWS_WITH(build_ring_gather(movement, 0, {}), Catch::Contains("use the direct gather"));
    CHECK_THROWS_WITH(build_broadcast_gather(movement, 0, {}), Catch::Contains("use the direct gather"));

    Movement replicated = test::gather_movement(test::group_shapes(3)[4]);
    replicated.from.pieces[2] = replicated.from.pieces[1];
    CHECK_THROWS_AS(build_ring_gather(replicated, 0, {}), ConfigError);
}

TEST_CASE("builders: a wanted element that nobody holds, and chunks without a size, are refused") {
    Movement gather = test::gather_movement(test::group_shapes(3)[4]);
    gather.from.pieces[1].clear();
    CHECK_THROWS_WITH(build_direct_gather(gather, 0, {}), Catch::Contains("some rank holds every element"));

    Movement sum = test::sum_movement(test::group_shapes(3)[4], 3, false);
    sum.from.pieces[1].clear();
    CHECK_THROWS_WITH(build_direct_sum(sum, 1, {}), Catch::Contains("every leaf holds"));
    sum.contributors = 4;
    CHECK_THROWS_WITH(build_direct_sum(sum, 0, {}), Catch::Contains("1 to 3 contributors, got 4"));
    CHECK_THROWS_AS(build_direct_gather(test::gather_movement(test::group_shapes(3)[4]), 0, {0}), InternalError);
    CHECK_THROWS_AS(build_direct_gather(test::gather_movement(test::group_shapes(3)[4]), 3, {}), InternalError);
}

TEST_CASE("choose_gather: automatic takes the ring where links to one rank are the bottleneck, and obeys a wish") {
    test::GroupShape shape;
    // One rank owns everything: direct sends it seven times from one rank, the ring once from each.
    for (int rank = 0; rank < 8; ++rank) shape.sizes.push_back({rank == 0 ? 1 << 22 : 0});
    const Movement large = test::gather_movement(shape);
    const Mesh mesh = Mesh::single_node(8);
    const BuildOptions options{65536};
    CHECK(choose_gather(large, GatherAlgorithm::automatic, mesh, {}, options) == GatherAlgorithm::ring);
    CHECK(choose_gather(large, GatherAlgorithm::direct, mesh, {}, options) == GatherAlgorithm::direct);
    shape.sizes[0] = {16};
    const Movement small = test::gather_movement(shape);
    CHECK(choose_gather(small, GatherAlgorithm::automatic, mesh, {}, options) == GatherAlgorithm::direct);
    CHECK(choose_gather(small, GatherAlgorithm::ring, mesh, {}, options) == GatherAlgorithm::ring);
    Movement partial = large;
    partial.to.pieces[3].clear();
    CHECK(choose_gather(partial, GatherAlgorithm::automatic, mesh, {}, options) == GatherAlgorithm::direct);
}

TEST_CASE("link model: a round costs its slowest direction, rounds add up, channels overlap") {
    LinkModel links;
    links.latency_seconds_within_node = 1.0;
    links.bytes_per_second_within_node = 4.0;
    links.latency_seconds_between_nodes = 10.0;
    links.bytes_per_second_between_nodes = 2.0;
    links.bytes_per_second_local = 8.0;
    Mesh mesh = Mesh::single_node(3);
    mesh.node_of_rank = {0, 0, 1};
    CHECK(mesh.nodes() == 2);
    TransferOperation send{OperationKind::send, BufferRole::shard, 0, BufferRole::shard, 0, 8};
    send.peer = 1;
    TransferOperation receive = send;
    receive.kind = OperationKind::receive;
    receive.count = 4;
    TransferOperation far = send;
    far.peer = 2;
    TransferOperation add = send;
    add.kind = OperationKind::add;
    TransferSchedule schedule;
    schedule.channels = {Channel{{Round{{send, receive}}, Round{{add}}}}, Channel{{Round{{far}}}}};
    // channel 0: 1 + 32/4, then (32 + 2 * 32) / 8; channel 1: 10 + 32/2
    CHECK(links.seconds(schedule, 0, mesh) == Approx(26.0));
    schedule.channels.pop_back();
    CHECK(links.seconds(schedule, 0, mesh) == Approx(9.0 + 12.0));
}
