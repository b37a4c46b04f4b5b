#include "mfsdp/comm/placement.h"

#include "mfsdp/base/error.h"
#include "mfsdp/comm/transfer_schedule.h"

#include "support/catch.h"

using namespace mfsdp;
using namespace mfsdp::comm;

TEST_CASE("placement: even rows give rank r rows floor(r rows / N) to floor((r + 1) rows / N), empty ones left out") {
    CHECK(Placement::even_rows(7, 3).segments == std::vector<Segment>{{0, 0, 2}, {1, 2, 2}, {2, 4, 3}});
    CHECK(Placement::even_rows(2, 4).segments == std::vector<Segment>{{1, 0, 1}, {3, 1, 1}});
    CHECK(Placement::even_rows(0, 4).segments.empty());
    CHECK_THROWS_AS(Placement::even_rows(1, 0), InternalError);
}

TEST_CASE("placement: whole and replicated rows are segments too, found by rank") {
    const Placement whole = Placement::whole(2, 9);
    CHECK(whole.on(0) == nullptr);
    REQUIRE(whole.on(2) != nullptr);
    CHECK(*whole.on(2) == Segment{2, 0, 9});
    CHECK(Placement::whole(2, 0).segments.empty());
    CHECK(Placement::replicated(4, 2).segments == std::vector<Segment>{{0, 0, 4}, {1, 0, 4}});
    CHECK(Mesh::single_node(3).nodes() == 1);
    CHECK(Mesh::single_node(3).ranks() == 3);
}

TEST_CASE("coalesce: joins neighbours that touch in both coordinates, and only those") {
    const std::vector<Piece> joined = coalesce({{4, 14, 2}, {0, 10, 4}, {9, 16, 1}, {10, 18, 1}, {20, 30, 0}});
    CHECK(joined == std::vector<Piece>{{0, 10, 6}, {9, 16, 1}, {10, 18, 1}});
    CHECK(coalesce({}).empty());
}

TEST_CASE("transfer schedule: counts the bytes of its messages and knows whether it does anything") {
    TransferSchedule schedule;
    CHECK(schedule.empty());
    schedule.channels = {Channel{{Round{}, Round{}}}, Channel{}};
    CHECK(schedule.empty());
    TransferOperation send;
    send.kind = OperationKind::send;
    send.count = 3;
    TransferOperation receive;
    receive.kind = OperationKind::receive;
    receive.count = 5;
    receive.source_dtype = receive.target_dtype = device::DType::bfloat16;
    TransferOperation copy;
    copy.count = 100;
    schedule.channels[0].rounds[1].operations = {send, receive, copy};
    CHECK_FALSE(schedule.empty());
    CHECK(schedule.bytes_sent() == 12);
    CHECK(schedule.bytes_received() == 10);
    CHECK(name(BufferRole::accumulator) == "accumulator");
}
