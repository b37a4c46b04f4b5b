#include "mfsdp/comm/link_model.h"

#include "support/catch.h"

#include <vector>

using namespace mfsdp;
using namespace mfsdp::comm;
using device::DType;

namespace {

/// Figures that are easy to calculate with: seconds come out as sums of powers of two.
LinkModel simple_links() {
    return {.latency_seconds_within_node = 0.5,
            .bytes_per_second_within_node = 64.0,
            .latency_seconds_between_nodes = 4.0,
            .bytes_per_second_between_nodes = 16.0,
            .bytes_per_second_local = 128.0};
}

/// Ranks 0 and 1 on one machine, 2 and 3 on another.
Mesh two_nodes() { return {.replicate = 1, .shard = 4, .node_of_rank = {0, 0, 1, 1}}; }

TransferOperation operation(OperationKind kind, std::int64_t count, int peer = -1) {
    TransferOperation result;
    result.kind = kind;
    result.count = count;
    result.peer = peer;
    result.source_dtype = result.target_dtype = DType::float32;
    return result;
}

TransferSchedule schedule(const std::vector<std::vector<TransferOperation>>& rounds) {
    TransferSchedule result;
    result.channels.emplace_back();
    for (const std::vector<TransferOperation>& operations : rounds) {
        result.channels.back().rounds.emplace_back();
        result.channels.back().rounds.back().operations = operations;
    }
    return result;
}

double seconds(const std::vector<std::vector<TransferOperation>>& rounds) {
    return simple_links().seconds(schedule(rounds), 0, two_nodes());
}

}  // namespace

TEST_CASE("a message takes the latency and the bytes of its link, and an empty schedule nothing") {
    CHECK(seconds({}) == 0.0);
    CHECK(seconds(std::vector<std::vector<TransferOperation>>(1)) == 0.0);
    CHECK(seconds({{operation(OperationKind::send, 32, 1)}}) == 0.5 + 128.0 / 64.0);
    CHECK(seconds({{operation(OperationKind::receive, 32, 1)}}) == 0.5 + 128.0 / 64.0);
    CHECK(seconds({{operation(OperationKind::send, 32, 2)}}) == 4.0 + 128.0 / 16.0);
    CHECK(seconds({{operation(OperationKind::receive, 32, 3)}}) == 4.0 + 128.0 / 16.0);
}

TEST_CASE("within a round one direction of one link adds up and different ones run at once") {
    // Two messages to the same machine share the link and pay the latency once.
    CHECK(seconds({{operation(OperationKind::send, 16, 1), operation(OperationKind::send, 16, 1)}}) == 2.5);
    // A send and a receive do not: the longer decides.
    CHECK(seconds({{operation(OperationKind::send, 32, 1), operation(OperationKind::receive, 16, 1)}}) == 2.5);
    // Nor do the two kinds of link: 12 s between the machines, 2.5 s within.
    CHECK(seconds({{operation(OperationKind::send, 32, 1), operation(OperationKind::send, 32, 2)}}) == 12.0);
}

TEST_CASE("local work reads and writes: a copy two, an add three times its bytes, without latency") {
    CHECK(seconds({{operation(OperationKind::copy, 32)}}) == 2 * 128.0 / 128.0);
    CHECK(seconds({{operation(OperationKind::add, 32)}}) == 3 * 128.0 / 128.0);
    // A bfloat16 leaf added to a float32 sum: 64 bytes read, 128 read and written.
    TransferOperation add = operation(OperationKind::add, 32);
    add.source_dtype = DType::bfloat16;
    CHECK(seconds({{add}}) == (64.0 + 256.0) / 128.0);
    // Beside a message in the same round it costs what is longer: 2.5 s of sending, 3 s of adding.
    CHECK(seconds({{operation(OperationKind::send, 32, 1), operation(OperationKind::add, 32)}}) == 3.0);
}

TEST_CASE("rounds of a channel follow each other, channels run at once") {
    TransferSchedule two = schedule({{operation(OperationKind::send, 32, 1)}, {operation(OperationKind::send, 32, 2)}});
    CHECK(simple_links().seconds(two, 0, two_nodes()) == 2.5 + 12.0);
    two.channels.push_back(schedule({{operation(OperationKind::send, 64, 1)}}).channels.front());  // 4.5 s
    CHECK(simple_links().seconds(two, 0, two_nodes()) == 14.5);
}

TEST_CASE("the text of a model has all its figures, so that ranks notice any difference") {
    CHECK(simple_links().text() == "0.5 64 4 16 128");
    LinkModel other = simple_links();
    other.bytes_per_second_local = 128.5;
    CHECK(other.text() != simple_links().text());
}
