#include "mfsdp/runtime/train/capacity.h"

#include "mfsdp/runtime/train/plan_report.h"

#include "support/catch.h"
#include "support/training_run.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

using namespace mfsdp;
using runtime::Strategy;
using test::TrainingCase;

namespace {

TrainingCase uneven_case(Strategy strategy) {
    TrainingCase c;
    c.model = test::uneven_llama();
    c.strategy = strategy;
    c.micro_batches = 12;  // of 2 sequences: micro-batches of 1, 2, 3, 4, 6, 8, 12, 24
    return c;
}

/// Most that any rank needs, every rank rehearsed by itself.
std::int64_t largest_memory(const runtime::TrainConfig& config, std::int64_t ranks) {
    const runtime::RunPlan run = runtime::plan_for_ranks(config, ranks);
    std::int64_t largest = 0;
    for (int rank = 0; rank < run.plan.ranks; ++rank) {
        largest = std::max(largest, runtime::rehearse(run, rank).total_memory());
    }
    return largest;
}

}  // namespace

TEST_CASE("rehearsing all ranks at once gives each rank's own rehearsal") {
    for (const Strategy strategy : {Strategy::matrix_fsdp, Strategy::zero1_owner, Strategy::ddp}) {
        for (const int ranks : {1, 5, 8}) {
            TrainingCase c = uneven_case(strategy);
            c.ranks = ranks;
            runtime::RunPlan run = test::training_plan(c);
            runtime::choose_transfers(run);
            const std::vector<runtime::Rehearsal> all = runtime::rehearse_all(run);
            REQUIRE(all.size() == static_cast<std::size_t>(ranks));
            for (int rank = 0; rank < ranks; ++rank) {
                const runtime::Rehearsal own = runtime::rehearse(run, rank);
                const runtime::Rehearsal& other = all[static_cast<std::size_t>(rank)];
                CHECK(own.total_memory() > 0);
                CHECK(other.memory == own.memory);
                CHECK(other.transfers.bytes_sent == own.transfers.bytes_sent);
                CHECK(other.optimizer_flops == own.optimizer_flops);
                CHECK(other.step_seconds == own.step_seconds);
            }
        }
    }
}

TEST_CASE("the largest micro-batch is the largest divisor of the global batch whose rehearsals fit") {
    for (const Strategy strategy : {Strategy::matrix_fsdp, Strategy::ddp}) {
        const runtime::TrainConfig config = test::training_config(uneven_case(strategy));
        for (const std::int64_t wanted : {1, 3, 8, 24}) {
            INFO("micro-batch " << wanted);
            runtime::TrainConfig candidate = config;
            candidate.train.micro_batch_size = wanted;
            const std::int64_t limit = largest_memory(candidate, 3);
            const auto found = runtime::largest_micro_batch(config, 3, limit);
            REQUIRE(found);
            CHECK(found->micro_batch_size == wanted);
            CHECK(found->fit.fits());
            CHECK(found->fit.largest_bytes == limit);
            // One byte less, and it must be a smaller one, or none.
            const auto smaller = runtime::largest_micro_batch(config, 3, limit - 1);
            CHECK((wanted == 1 ? !smaller : smaller && smaller->micro_batch_size < wanted));
        }
    }
}

TEST_CASE("the fewest ranks are those that fit when one rank fewer does not") {
    const runtime::TrainConfig config = test::training_config(uneven_case(Strategy::matrix_fsdp));
    std::set<std::int64_t> answers;
    for (const std::int64_t ranks : {1, 2, 3, 4, 5, 6}) {
        const std::int64_t limit = largest_memory(config, ranks);
        std::int64_t wanted = 1;  // not always `ranks`: one more can take as much
        while (largest_memory(config, wanted) > limit) ++wanted;
        INFO(wanted << " ranks, as much memory as " << ranks << " need");
        const auto found = runtime::fewest_ranks(config, limit, 16);
        REQUIRE(found);
        CHECK(found->ranks == wanted);
        CHECK(found->fit.fits());
        answers.insert(wanted);
    }
    CHECK(answers.size() >= 4);
    CHECK_FALSE(runtime::fewest_ranks(config, 1000, 16));
    // Replicas do not become smaller by being more.
    const runtime::TrainConfig replicated = test::training_config(uneven_case(Strategy::ddp));
    CHECK(runtime::fewest_ranks(replicated, largest_memory(replicated, 1), 16)->ranks == 1);
    CHECK_FALSE(runtime::fewest_ranks(replicated, largest_memory(replicated, 1) - 1, 5));
}

TEST_CASE("a plan's report answers what fits, for people and for programs") {
    runtime::TrainConfig config = test::training_config(uneven_case(Strategy::matrix_fsdp));
    const double gibibytes = static_cast<double>(largest_memory(config, 3)) / (1024.0 * 1024.0 * 1024.0);
    const runtime::PlanReport report = runtime::make_plan_report(config, {.ranks = 3, .memory_gib = gibibytes});
    const std::string text = runtime::plan_text(report);
    INFO(text);
    CHECK(text.find("does it fit: yes") != std::string::npos);
    CHECK(text.find("largest train.micro_batch_size that fits: 2 (") != std::string::npos);
    CHECK(text.find("fewest ranks that fit: 3;") != std::string::npos);
    const auto answers = nlohmann::json::parse(runtime::plan_json(report)).at("answers");
    CHECK(answers.at("fits") == true);
    CHECK(answers.at("largest_micro_batch").at("micro_batch_size") == 2);
    CHECK(answers.at("fewest_ranks").at("ranks") == 3);

    const runtime::PlanReport refused = runtime::make_plan_report(config, {.ranks = 2, .memory_gib = 1e-6});
    CHECK(runtime::plan_text(refused).find("does it fit: no; rank ") != std::string::npos);
    CHECK(runtime::plan_text(refused).find("that fits: none, not even 1\n  fewest ranks that fit: none") !=
          std::string::npos);
    const auto none = nlohmann::json::parse(runtime::plan_json(refused)).at("answers");
    CHECK(none.at("fits") == false);
    CHECK(none.at("ranks_beyond") == 2);
    CHECK(none.at("largest_micro_batch").is_null());
    CHECK(none.at("fewest_ranks").is_null());

    // Without a memory named it is this machine's, and nothing is searched.
    const runtime::PlanReport here = runtime::make_plan_report(config, {.ranks = 3});
    CHECK(here.fit->limit_bytes == runtime::machine_memory() / 3);
    CHECK_FALSE(nlohmann::json::parse(runtime::plan_json(here)).at("answers").contains("fewest_ranks"));
}
