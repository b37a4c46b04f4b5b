#include "mfsdp/comm/schedule_checker.h"

#include "mfsdp/base/error.h"
#include "mfsdp/comm/builders/builders.h"
#include "mfsdp/comm/startup_comparison.h"

#include "support/catch.h"
#include "support/movement_cases.h"

#include <algorithm>
#include <functional>

namespace {

using namespace mfsdp;
using namespace mfsdp::comm;
using Schedules = std::vector<TransferSchedule>;

constexpr std::int64_t kChunk = 16;

Movement sum_of_three(bool accumulate = false) {
    test::GroupShape shape;
    shape.sizes = {{9}, {7, 2}, {5}};
    return test::sum_movement(shape, 3, accumulate);
}

Movement gather_of_three() {
    test::GroupShape shape;
    shape.sizes = {{9}, {7, 2}, {5}};
    shape.row_cut = {8};
    return test::gather_movement(shape);
}

Schedules build(const Movement& movement, GatherAlgorithm algorithm = GatherAlgorithm::ring) {
    Schedules schedules;
    for (int rank = 0; rank < movement.ranks(); ++rank) {
        schedules.push_back(movement.combine == Combine::sum ? build_direct_sum(movement, rank, {kChunk})
                                                             : build_gather(algorithm, movement, rank, {kChunk}));
    }
    return schedules;
}

// Every operation of a kind on a rank, in order.
std::vector<TransferOperation*> all_of(TransferSchedule& schedule, OperationKind kind) {
    std::vector<TransferOperation*> found;
    for (Channel& channel : schedule.channels) {
        for (Round& round : channel.rounds) {
            for (TransferOperation& operation : round.operations) {
                if (operation.kind == kind) found.push_back(&operation);
            }
        }
    }
    return found;
}

void remove(TransferSchedule& schedule, const TransferOperation* unwanted) {
    for (Channel& channel : schedule.channels) {
        for (Round& round : channel.rounds) {
            for (std::size_t i = 0; i < round.operations.size(); ++i) {
                if (&round.operations[i] == unwanted) {
                    round.operations.erase(round.operations.begin() + static_cast<std::ptrdiff_t>(i));
                    return;
                }
            }
        }
    }
    FAIL("the operation to remove is in the schedule");
}

// The undamaged schedules pass; the damaged ones fail with the reason.
void check_damage(const Movement& movement, Schedules schedules, const std::string& reason,
                  const std::function<void(Schedules&)>& damage) {
    REQUIRE_NOTHROW(check_schedules(movement, schedules));
    damage(schedules);
    CHECK_THROWS_AS(check_schedules(movement, schedules), InternalError);
    CHECK_THROWS_WITH(check_schedules(movement, schedules), Catch::Contains(reason));
}

}  // namespace

TEST_CASE("schedule checker: a dropped send or receive is a deadlock that names the waiting operation") {
    for (const OperationKind kind : {OperationKind::send, OperationKind::receive}) {
        check_damage(gather_of_three(), build(gather_of_three()), "deadlock",
                     [&](Schedules& schedules) { remove(schedules[1], all_of(schedules[1], kind).back()); });
    }
}

TEST_CASE("schedule checker: a dropped copy leaves elements that nobody wrote") {
    check_damage(gather_of_three(), build(gather_of_three()), "nothing known",
                 [](Schedules& schedules) { remove(schedules[2], all_of(schedules[2], OperationKind::copy).front()); });
}

TEST_CASE("schedule checker: a dropped add is a missing leaf") {
    check_damage(sum_of_three(), build(sum_of_three()), "the sum of the first 2 leaves",
                 [](Schedules& schedules) { remove(schedules[0], all_of(schedules[0], OperationKind::add).back()); });
}

TEST_CASE("schedule checker: a leaf added twice is found") {
    check_damage(sum_of_three(), build(sum_of_three()), "adds leaf", [](Schedules& schedules) {
        const TransferOperation again = *all_of(schedules[1], OperationKind::add).back();
        schedules[1].channels[1].rounds.push_back(Round{{again}});
    });
}

TEST_CASE("schedule checker: leaves added in another order are found") {
    check_damage(sum_of_three(), build(sum_of_three()), "adds leaf", [](Schedules& schedules) {
        // Contributors 1 and 2 change places on owner 0: their messages still meet.
        for (TransferOperation* receive : all_of(schedules[0], OperationKind::receive))
            receive->peer = 3 - receive->peer;
    });
}

TEST_CASE("schedule checker: an accumulator that is overwritten instead of added to is found") {
    check_damage(
        sum_of_three(true), build(sum_of_three(true)), "wanted the sum of the first 3 leaves on top of",
        [](Schedules& schedules) { all_of(schedules[0], OperationKind::add).front()->kind = OperationKind::copy; });
}

TEST_CASE("schedule checker: elements in a wrong place are found, sent, received, copied or added") {
    check_damage(gather_of_three(), build(gather_of_three()), "of group element",
                 [](Schedules& schedules) { all_of(schedules[0], OperationKind::send).front()->offset += 1; });
    check_damage(sum_of_three(), build(sum_of_three()), "of group element",
                 [](Schedules& schedules) { all_of(schedules[2], OperationKind::send).front()->offset += 1; });
    check_damage(gather_of_three(), build(gather_of_three()), "of group element",
                 [](Schedules& schedules) { all_of(schedules[1], OperationKind::copy).front()->source_offset -= 1; });
    check_damage(sum_of_three(), build(sum_of_three()), "the movement does not fill",
                 [](Schedules& schedules) { all_of(schedules[1], OperationKind::add).back()->offset += 3; });
}

TEST_CASE("schedule checker: a side that expects other bytes is found") {
    check_damage(gather_of_three(), build(gather_of_three()), "meets another message",
                 [](Schedules& schedules) { all_of(schedules[0], OperationKind::send).front()->count -= 1; });
    check_damage(gather_of_three(), build(gather_of_three()), "meets another message", [](Schedules& schedules) {
        TransferOperation& send = *all_of(schedules[0], OperationKind::send).front();
        send.source_dtype = send.target_dtype = device::DType::int32;
    });
}

TEST_CASE("schedule checker: blocking receives before sends around a ring are a deadlock") {
    test::GroupShape shape;
    shape.sizes = {{4}, {4}, {4}};
    const Movement movement = test::gather_movement(shape);
    check_damage(movement, build(movement), "deadlock", [](Schedules& schedules) {
        for (TransferSchedule& schedule : schedules) {
            std::vector<Round>& rounds = schedule.channels[0].rounds;
            REQUIRE(rounds[0].operations.size() == 2);
            const bool send_first = rounds[0].operations[0].kind == OperationKind::send;
            const TransferOperation receive = rounds[0].operations[send_first ? 1 : 0];
            const TransferOperation send = rounds[0].operations[send_first ? 0 : 1];
            rounds[0].operations = {send};
            rounds.insert(rounds.begin(), Round{{receive}});
        }
    });
}

TEST_CASE("schedule checker: receives of one round that overlap are found") {
    const Movement movement = gather_of_three();
    check_damage(movement, build(movement, GatherAlgorithm::direct), "at once", [](Schedules& schedules) {
        const std::vector<TransferOperation*> receives = all_of(schedules[0], OperationKind::receive);
        receives[1]->offset = receives[0]->offset;
    });
}

TEST_CASE("schedule checker: forwarding in the round of the arrival is found") {
    test::GroupShape shape;
    shape.sizes = {{4}, {4}, {4}};
    const Movement movement = test::gather_movement(shape);
    check_damage(movement, build(movement), "at once", [](Schedules& schedules) {
        std::vector<Round>& rounds = schedules[0].channels[0].rounds;
        REQUIRE(rounds.size() == 2);
        rounds[0].operations.insert(rounds[0].operations.end(), rounds[1].operations.begin(),
                                    rounds[1].operations.end());
        rounds.pop_back();
    });
}

TEST_CASE("schedule checker: an addition from the slot that is being received is found") {
    check_damage(sum_of_three(), build(sum_of_three()), "at once", [](Schedules& schedules) {
        for (TransferOperation* receive : all_of(schedules[0], OperationKind::receive)) {
            if (receive->buffer == BufferRole::scratch) receive->offset = 0;
        }
        for (TransferOperation* add : all_of(schedules[0], OperationKind::add)) {
            if (add->source_buffer == BufferRole::scratch) add->source_offset = 0;
        }
    });
}

TEST_CASE("schedule checker: channels that touch what another writes are found") {
    const Movement movement = gather_of_three();
    check_damage(movement, build(movement, GatherAlgorithm::direct), "at once", [](Schedules& schedules) {
        TransferOperation extra = *all_of(schedules[0], OperationKind::copy).front();
        schedules[0].channels.push_back(Channel{{Round{{extra}}}});
    });
}

TEST_CASE("schedule checker: messages of one pair in two channels have no order and are refused") {
    const Movement movement = gather_of_three();
    check_damage(movement, build(movement, GatherAlgorithm::direct), "their order is open", [](Schedules& schedules) {
        const TransferOperation send = *all_of(schedules[0], OperationKind::send).back();
        remove(schedules[0], all_of(schedules[0], OperationKind::send).back());
        schedules[0].channels.push_back(Channel{{Round{{send}}}});
    });
}

TEST_CASE("schedule checker: writes outside the target or beyond the scratch are refused") {
    check_damage(gather_of_three(), build(gather_of_three()), "the movement does not fill", [](Schedules& schedules) {
        all_of(schedules[0], OperationKind::receive).front()->buffer = BufferRole::shard;
    });
    check_damage(sum_of_three(), build(sum_of_three()), "beyond the scratch",
                 [](Schedules& schedules) { schedules[1].scratch_bytes = 8; });
}

TEST_CASE("schedule checker: senseless operations are refused") {
    const auto damage_first_send = [](const std::function<void(TransferOperation&)>& damage,
                                      const std::string& reason) {
        check_damage(gather_of_three(), build(gather_of_three()), reason,
                     [&](Schedules& schedules) { damage(*all_of(schedules[1], OperationKind::send).front()); });
    };
    damage_first_send([](TransferOperation& send) { send.peer = 1; }, "no other rank as its peer");
    damage_first_send([](TransferOperation& send) { send.peer = 3; }, "no other rank as its peer");
    damage_first_send([](TransferOperation& send) { send.count = 0; }, "no elements");
    damage_first_send([](TransferOperation& send) { send.target_dtype = device::DType::bfloat16; }, "changes the type");
    damage_first_send([](TransferOperation& send) { send.kind = OperationKind::broadcast; },
                      "its broadcasts are not those of rank 0");
    damage_first_send([](TransferOperation& send) { send.offset = -1; }, "negative offset");
    CHECK_THROWS_AS(check_schedules(gather_of_three(), Schedules(2)), InternalError);
}

TEST_CASE("schedule checker: broadcasts are for all ranks, alike on all of them") {
    const auto damage = [](const std::string& reason,
                           const std::function<void(std::vector<TransferOperation>&)>& change) {
        check_damage(gather_of_three(), build(gather_of_three(), GatherAlgorithm::broadcast), reason,
                     [&](Schedules& schedules) { change(schedules[1].channels.front().rounds.front().operations); });
    };
    // Chunks of one root have one size: only where they end tells them apart.
    damage("at the end, the place of group element",
           [](std::vector<TransferOperation>& operations) { std::swap(operations.front(), operations[1]); });
    damage("its broadcasts are not those of rank 0", [](std::vector<TransferOperation>& operations) {
        const auto other = std::find_if(operations.begin(), operations.end(), [&](const TransferOperation& operation) {
            return operation.kind == OperationKind::broadcast && operation.peer != operations.front().peer;
        });
        REQUIRE(other != operations.end());
        std::iter_swap(operations.begin(), other);
    });
    damage("its broadcasts are not those of rank 0",
           [](std::vector<TransferOperation>& operations) { operations.erase(operations.begin()); });
    damage("receivers, wanted", [](std::vector<TransferOperation>& operations) {
        for (TransferOperation& operation : operations) operation.receivers = 1;
    });
}

TEST_CASE("schedule checker: a message says rank, channel, round and movement") {
    const Movement movement = sum_of_three();
    Schedules schedules = build(movement);
    remove(schedules[0], all_of(schedules[0], OperationKind::receive).back());
    CHECK_THROWS_WITH(check_schedules(movement, schedules), Catch::StartsWith("schedule check: 'sum': rank ") &&
                                                                Catch::Contains(", channel ") &&
                                                                Catch::Contains(", round "));
}

TEST_CASE("compare_startup_facts: equal facts pass; a different one is named on every rank") {
    ThreadCluster equal(3);
    equal.run([](Communicator& communicator) {
        const std::vector<StartupFacts> facts{{"plan", "abc"}, {"instruction set", "avx2"}};
        compare_startup_facts(communicator, facts);
        compare_startup_facts(communicator, {});
    });

    ThreadCluster unequal(3);
    std::array<std::string, 3> errors;
    unequal.run([&](Communicator& communicator) {
        const std::string plan = communicator.rank() == 2 ? "abcd" : "abc";
        const std::vector<StartupFacts> facts{{"configuration", "1"}, {"plan", plan}};
        try {
            compare_startup_facts(communicator, facts);
        } catch (const ConfigError& error) {
            errors[static_cast<std::size_t>(communicator.rank())] = error.what();
        }
    });
    for (const std::string& error : errors) {
        CHECK_THAT(error, Catch::Contains("'plan'") && Catch::Contains("rank 0 has 'abc'") &&
                              Catch::Contains("rank 2 has 'abcd'"));
    }
}

TEST_CASE("compare_message_lists: a rank that plans other messages is found by all, with the pair") {
    const Movement movement = sum_of_three();
    const Schedules schedules = build(movement);
    const auto run = [&](bool damage) {
        std::array<std::string, 3> errors;
        ThreadCluster cluster(3);
        cluster.run([&](Communicator& communicator) {
            TransferSchedule first = schedules[static_cast<std::size_t>(communicator.rank())];
            const TransferSchedule second = first;
            if (damage && communicator.rank() == 1) all_of(first, OperationKind::send).front()->count -= 1;
            const std::array<const TransferSchedule*, 2> list{&first, &second};
            try {
                compare_message_lists(communicator, list);
            } catch (const InternalError& error) {
                errors[static_cast<std::size_t>(communicator.rank())] = error.what();
            }
        });
        return errors;
    };
    for (const std::string& error : run(false)) CHECK(error.empty());
    for (const std::string& error : run(true))
        CHECK_THAT(error, Catch::Contains("rank 1 sends other messages to rank 2"));
}
