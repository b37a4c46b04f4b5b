#include "mfsdp/runtime/placement/planner.h"

#include "mfsdp/comm/builders/builders.h"
#include "mfsdp/comm/schedule_checker.h"
#include "mfsdp/runtime/placement/group_layout.h"

#include "support/catch.h"
#include "support/training_run.h"

#include <algorithm>
#include <numeric>
#include <set>

using namespace mfsdp;
using runtime::PlannerPolicy;
using runtime::Strategy;
using test::TrainingCase;

namespace {

runtime::RunPlan plan_for(const model::ModelConfig& model, int ranks, Strategy strategy, PlannerPolicy policy) {
    TrainingCase c;
    c.model = model;
    c.ranks = ranks;
    c.strategy = strategy;
    c.policy = policy;
    return test::training_plan(c);
}

/// Every row of every parameter has exactly one holder in a partitioned placement.
void check_partition(const comm::Placement& placement, std::int64_t rows) {
    std::int64_t next = 0;
    for (const comm::Segment& segment : placement.segments) {
        CHECK(segment.row_begin == next);
        CHECK(segment.row_count > 0);
        next += segment.row_count;
    }
    CHECK(next == rows);
}

}  // namespace

TEST_CASE("every row has one owner, with few ranks and many and more ranks than matrices") {
    for (const PlannerPolicy policy :
         {PlannerPolicy::round_robin, PlannerPolicy::bytes, PlannerPolicy::flops, PlannerPolicy::balanced}) {
        for (const int ranks : {1, 3, 8, 64}) {
            const runtime::RunPlan run = plan_for(test::uneven_gpt2(), ranks, Strategy::matrix_fsdp, policy);
            REQUIRE(run.plan.shards.size() == run.spec.parameters.size());
            for (const runtime::MatrixShard& shard : run.plan.shards) {
                const std::int64_t rows = run.spec.parameters[static_cast<std::size_t>(shard.parameter)].rows();
                check_partition(shard.gradient, rows);
                CHECK(shard.at_rest == shard.gradient);
                CHECK(shard.optimizer == shard.gradient);
                if (shard.role != optim::Role::rows) CHECK(shard.gradient.segments.size() == 1);
            }
        }
    }
}

TEST_CASE("a strategy is its three placements") {
    const int ranks = 4;
    for (const Strategy strategy : {Strategy::matrix_fsdp, Strategy::zero1_owner, Strategy::ddp}) {
        const runtime::RunPlan run = plan_for(test::uneven_llama(), ranks, strategy, PlannerPolicy::balanced);
        for (const runtime::MatrixShard& shard : run.plan.shards) {
            const comm::Placement everywhere = comm::Placement::replicated(
                run.spec.parameters[static_cast<std::size_t>(shard.parameter)].rows(), ranks);
            CHECK((shard.at_rest == everywhere) == (strategy != Strategy::matrix_fsdp));
            CHECK((shard.gradient == everywhere) == (strategy == Strategy::ddp));
            CHECK(shard.optimizer == shard.gradient);
        }
    }
}

TEST_CASE("the plan is the same on repetition and does not depend on the order of parameters") {
    TrainingCase c;
    c.model = test::uneven_llama();
    c.ranks = 5;
    c.strategy = Strategy::matrix_fsdp;
    const runtime::RunPlan run = test::training_plan(c);
    CHECK(run.plan.hash(run.spec) == test::training_plan(c).plan.hash(run.spec));

    // The same model with its parameters listed backwards.
    const std::size_t count = run.spec.parameters.size();
    model::ModelSpec reversed = run.spec;
    std::reverse(reversed.parameters.begin(), reversed.parameters.end());
    for (model::UnitSpec& unit : reversed.units) {
        for (std::int64_t& parameter : unit.parameters) parameter = static_cast<std::int64_t>(count) - 1 - parameter;
    }
    const std::vector<optim::Role> roles(run.roles.rbegin(), run.roles.rend());
    const std::vector<runtime::OwnershipCost> costs(run.costs.rbegin(), run.costs.rend());
    const runtime::ShardPlan other = runtime::make_shard_plan(
        {reversed, roles, costs, run.mesh, c.strategy, test::training_config(c).parallel.planner});
    for (std::size_t i = 0; i < count; ++i) CHECK(other.shards[count - 1 - i].gradient == run.plan.shards[i].gradient);
}

TEST_CASE("ties go to the rank with fewer bytes of the unit, then to the lower rank") {
    // Four equal matrices of one unit on four ranks: one each.
    model::ModelSpec spec;
    spec.units = {{"block", {0, 1, 2, 3}, true}};
    for (const char* name : {"a", "b", "c", "d"}) {
        model::ParameterSpec parameter;
        parameter.name = name;
        parameter.shape = {4, 4};
        parameter.kind = model::ParameterKind::block_matrix;
        spec.parameters.push_back(parameter);
    }
    const std::vector<optim::Role> roles(4, optim::Role::matrix);
    const std::vector<runtime::OwnershipCost> costs(4, {64, 128});
    const comm::Mesh mesh = comm::Mesh::single_node(4);
    const runtime::ShardPlan plan = runtime::make_shard_plan({spec, roles, costs, mesh, Strategy::matrix_fsdp, {}});
    for (int i = 0; i < 4; ++i) CHECK(plan.shards[static_cast<std::size_t>(i)].gradient.segments[0].rank == i);

    const std::vector<runtime::OwnershipCost> free_flops(4, {64, 0});  // policy flops: all loads tie at 0
    const runtime::ShardPlan spread = runtime::make_shard_plan(
        {spec, roles, free_flops, mesh, Strategy::matrix_fsdp, {.policy = PlannerPolicy::flops}});
    std::set<int> owners;
    for (const runtime::MatrixShard& shard : spread.shards) owners.insert(shard.gradient.segments[0].rank);
    CHECK(owners.size() == 4);  // spread by the bytes of the unit
}

TEST_CASE("longest first is within the bound of Graham of the mean") {
    for (const PlannerPolicy policy : {PlannerPolicy::bytes, PlannerPolicy::flops}) {
        model::ModelConfig model = test::uneven_llama();
        model.num_hidden_layers = 12;
        const runtime::RunPlan run = plan_for(model, 5, Strategy::matrix_fsdp, policy);
        std::vector<double> load(5, 0.0);
        double largest = 0.0, total = 0.0;
        for (const runtime::MatrixShard& shard : run.plan.shards) {
            if (shard.role != optim::Role::matrix) continue;
            const runtime::OwnershipCost& cost = run.costs[static_cast<std::size_t>(shard.parameter)];
            const auto value = static_cast<double>(policy == PlannerPolicy::bytes ? cost.bytes : cost.flops);
            load[static_cast<std::size_t>(shard.gradient.segments[0].rank)] += value;
            largest = std::max(largest, value);
            total += value;
        }
        REQUIRE(total > 0.0);
        // Longest first never exceeds the mean by more than one item (tails are far smaller than any matrix here).
        CHECK(*std::max_element(load.begin(), load.end()) <= total / 5.0 + largest);
    }
}

TEST_CASE("a tied weight is a group of its own, used by two units") {
    const runtime::RunPlan run = plan_for(test::uneven_gpt2(), 3, Strategy::matrix_fsdp, PlannerPolicy::balanced);
    std::int64_t shared = 0;
    std::size_t members = 0;
    for (const runtime::TransferGroup& group : run.plan.groups) {
        members += group.slots.size();
        if (group.users.size() == 2) {
            ++shared;
            CHECK(group.slots.size() == 1);
        }
    }
    CHECK(shared == 1);
    CHECK(members == run.spec.parameters.size());
}

TEST_CASE("the schedules of every group of every plan pass the checker") {
    const comm::BuildOptions build{.chunk_bytes = 1024};
    model::ModelConfig large_vocabulary = test::uneven_gpt2();
    large_vocabulary.vocab_size = 9001;  // three panels
    for (const model::ModelConfig& model : {test::uneven_gpt2(), test::uneven_llama(), large_vocabulary}) {
        for (const Strategy strategy : {Strategy::matrix_fsdp, Strategy::zero1_owner, Strategy::ddp}) {
            for (const int ranks : {1, 2, 3, 5, 9, 16}) {
                INFO("strategy " << static_cast<int>(strategy) << ", ranks " << ranks);
                const runtime::RunPlan run = plan_for(model, ranks, strategy, PlannerPolicy::balanced);
                const auto check = [&](const comm::Movement& movement, auto&& build_one) {
                    std::vector<comm::TransferSchedule> schedules;
                    for (int rank = 0; rank < ranks; ++rank) schedules.push_back(build_one(movement, rank, build));
                    CHECK_NOTHROW(comm::check_schedules(movement, schedules));
                };
                REQUIRE(!run.plan.groups.empty());
                for (std::size_t group = 0; group < run.plan.groups.size(); ++group) {
                    const runtime::GroupLayout layout(run.spec, run.plan, static_cast<std::int64_t>(group));
                    for (const device::DType dtype : {device::DType::float32, device::DType::bfloat16}) {
                        check(layout.gather(dtype), comm::build_direct_gather);
                        check(layout.publish(dtype), comm::build_direct_gather);
                        if (strategy != Strategy::ddp) {
                            check(layout.gather(dtype), comm::build_ring_gather);
                            check(layout.publish(dtype), comm::build_ring_gather);
                        }
                        for (const int contributors : {1, ranks}) {
                            for (const bool accumulate : {false, true}) {
                                check(layout.reduce(dtype, contributors, accumulate), comm::build_direct_sum);
                            }
                        }
                        check(layout.collect(dtype, 0), comm::build_direct_gather);
                    }
                }
            }
        }
    }
}
