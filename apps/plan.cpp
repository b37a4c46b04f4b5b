// mfsdp-plan: shows where everything would live and what a step would cost, without ranks, GPU or data.

#include "mfsdp/runtime/config/parse_config.h"
#include "mfsdp/runtime/train/report.h"

#include "program.h"

#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
    using namespace mfsdp;
    CLI::App app{
        "Plans a run and rehearses one step of every rank on a device that only counts.\n"
        "Memory, bytes and FLOPs are exact; starts no ranks and needs neither a GPU nor data files."};
    apps::ConfigArguments arguments;
    arguments.add_to(app);
    int world = 0;
    bool as_json = false, plan_only = false;
    app.add_option("--world", world, "number of ranks (default: parallel.mesh of the file, else 1)")
        ->check(CLI::Range(1, 1 << 20));
    app.add_flag("--plan-only", plan_only, "owner map and balance only, no rehearsal");
    app.add_flag("--json", as_json, "print JSON");
    apps::add_common_options(app, "mfsdp-plan");
    if (const auto code = apps::parse_arguments(app, argc, argv)) return *code;

    return apps::run_alone([&] {
        runtime::TrainConfig config = runtime::parse_train_config(arguments.path, arguments.overrides);
        const std::int64_t ranks =
            world > 0 ? world : config.parallel.mesh.replicate * config.parallel.mesh.shard.value_or(1);
        if (world > 0) config.parallel.mesh.shard = ranks / config.parallel.mesh.replicate;
        runtime::RunPlan run = runtime::make_run_plan(config, std::vector<int>(static_cast<std::size_t>(ranks), 0));
        if (!plan_only) runtime::choose_transfers(run);
        std::vector<runtime::Rehearsal> rehearsals;
        for (int rank = 0; !plan_only && rank < run.plan.ranks; ++rank)
            rehearsals.push_back(runtime::rehearse(run, rank));
        if (as_json) {
            std::cout << runtime::plan_json(run, config, rehearsals);
            return;
        }
        std::cout << runtime::owner_table(run);
        if (!plan_only) std::cout << runtime::algorithm_table(run) << runtime::rank_table(rehearsals);
        std::cout << runtime::balance_line(runtime::balance(runtime::rank_loads(
            run.plan, {run.spec, run.roles, run.costs, run.mesh, config.parallel.strategy, config.parallel.planner})));
    });
}
