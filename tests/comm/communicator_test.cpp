#include "mfsdp/comm/communicator.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"
#include "support/delayed_communicator.h"

#include <array>
#include <chrono>
#include <thread>

namespace {

using namespace mfsdp;
using namespace mfsdp::comm;

void wait(Communicator& communicator, Communicator::Request request) {
    while (!communicator.test(request)) std::this_thread::yield();
}

std::byte* bytes_of(int& value) { return reinterpret_cast<std::byte*>(&value); }

}  // namespace

TEST_CASE("self communicator: one rank on one node, whose host exchange is a copy") {
    const auto self = make_self_communicator();
    CHECK(self->rank() == 0);
    CHECK(self->size() == 1);
    CHECK(self->node_of_rank() == std::vector<int>{0});
    const std::array<std::byte, 2> mine{std::byte{3}, std::byte{4}};
    std::array<std::byte, 2> all{};
    self->all_gather(mine, all);
    CHECK(all == mine);
    int value = 0;
    CHECK_THROWS_AS(self->post_send({0, Lane::gather, 0, bytes_of(value), 4}), InternalError);
}

TEST_CASE("thread cluster: a send ends only with its receive") {
    ThreadCluster cluster(2);
    int sent = 42;
    int received = 0;
    const auto send = cluster.rank(0).post_send({1, Lane::gather, 7, bytes_of(sent), 4});
    CHECK_FALSE(cluster.rank(0).test(send));
    const auto other_lane = cluster.rank(1).post_receive({0, Lane::reduce, 7, bytes_of(received), 4});
    const auto other_tag = cluster.rank(1).post_receive({0, Lane::gather, 8, bytes_of(received), 4});
    CHECK_FALSE(cluster.rank(0).test(send));
    const auto receive = cluster.rank(1).post_receive({0, Lane::gather, 7, bytes_of(received), 4});
    CHECK(cluster.rank(1).test(receive));
    CHECK(cluster.rank(0).test(send));
    CHECK(received == 42);
    CHECK_FALSE(cluster.rank(1).test(other_lane));
    CHECK_FALSE(cluster.rank(1).test(other_tag));
    CHECK_THROWS_AS(cluster.rank(0).test(send), InternalError);  // true once
    cluster.rank(1).cancel(other_lane);
    cluster.rank(1).cancel(other_tag);
}

TEST_CASE("thread cluster: messages of one pair, lane and tag match in the order of posting") {
    constexpr int kMessages = 100;
    ThreadCluster cluster(2);
    std::array<int, kMessages> got{};
    cluster.run([&](Communicator& communicator) {
        std::array<int, kMessages> values{};
        std::vector<Communicator::Request> requests;
        for (int i = 0; i < kMessages; ++i) {
            auto& value = communicator.rank() == 0 ? values : got;
            const auto index = static_cast<std::size_t>(i);
            value[index] = i * i;
            const Message message{1 - communicator.rank(), Lane::gather, 0, bytes_of(value[index]), 4};
            if (communicator.rank() == 1) value[index] = -1;
            requests.push_back(communicator.rank() == 0 ? communicator.post_send(message)
                                                        : communicator.post_receive(message));
        }
        for (const auto request : requests) wait(communicator, request);
    });
    for (int i = 0; i < kMessages; ++i) CHECK(got[static_cast<std::size_t>(i)] == i * i);
}

TEST_CASE("thread cluster: sides that disagree on the bytes both fail") {
    ThreadCluster cluster(2);
    int a = 0;
    int b = 0;
    const auto receive = cluster.rank(1).post_receive({0, Lane::gather, 0, bytes_of(b), 4});
    CHECK_THROWS_WITH(cluster.rank(0).post_send({1, Lane::gather, 0, bytes_of(a), 2}),
                      "comm: rank 0 sends 2 bytes where rank 1 receives 4");
    CHECK_THROWS_AS(cluster.rank(1).test(receive), CommunicationError);
    cluster.rank(1).cancel(receive);
}

TEST_CASE("thread cluster: host exchanges give everybody everything, again and again") {
    for (const int ranks : {1, 2, 5}) {
        ThreadCluster cluster(ranks);
        CHECK(cluster.size() == ranks);
        std::atomic<int> wrong{0};
        cluster.run([&](Communicator& communicator) {
            std::vector<std::int64_t> all(static_cast<std::size_t>(ranks));
            for (std::int64_t round = 0; round < 200; ++round) {
                const std::int64_t mine = round * 10 + communicator.rank();
                communicator.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
                for (int r = 0; r < ranks; ++r) wrong += all[static_cast<std::size_t>(r)] == round * 10 + r ? 0 : 1;
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("thread cluster: a host exchange without an answer ends with the timeout and the missing ranks") {
    ThreadCluster cluster(3);
    CHECK_THROWS_WITH(cluster.run([](Communicator& communicator) {
        if (communicator.rank() == 2) return;
        communicator.set_timeout_seconds(0.05);
        const std::byte mine{};
        std::array<std::byte, 3> all{};
        communicator.all_gather({&mine, 1}, all);
    }),
                      Catch::StartsWith("comm: host exchange: no answer from rank 2 within 0.05"));
}

TEST_CASE("delayed communicator: a message ends no earlier than its delay after posting") {
    ThreadCluster cluster(2);
    test::DelayedCommunicator slow(cluster.rank(0), [](const Message&) { return 0.05; });
    int sent = 5;
    int received = 0;
    const auto begin = std::chrono::steady_clock::now();
    const auto send = slow.post_send({1, Lane::gather, 0, bytes_of(sent), 4});
    const auto receive = cluster.rank(1).post_receive({0, Lane::gather, 0, bytes_of(received), 4});
    CHECK(cluster.rank(1).test(receive));
    CHECK_FALSE(slow.test(send));
    wait(slow, send);
    CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(50));
    CHECK(received == 5);
}

TEST_CASE("MPI communicator: a build without MPI says so") {
    if (mpi_available()) {
        SUCCEED("this build has MPI; its ranks are tested under mpirun");
    } else {
        CHECK_THROWS_AS(make_mpi_communicator(), ConfigError);
    }
}
