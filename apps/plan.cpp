// mfsdp-plan: shows where everything would live and what a step would cost, without ranks, GPU or data.

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/config/parse_config.h"
#include "mfsdp/runtime/train/report.h"
#include "mfsdp/version.h"

#include <algorithm>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace {

/// The exit code after everything is printed: a file cut short by a full disk must not look like a plan.
int finish_output() {
    if (std::cout.flush()) return 0;
    std::cerr << "stdout: cannot be written\n";
    return static_cast<int>(mfsdp::ExitCode::unexpected);
}

}  // namespace

int main(int argc, char** argv) {
    using namespace mfsdp;
    CLI::App app{
        "Plans a run and rehearses one step of every rank on a device that only counts.\n"
        "Memory, bytes and FLOPs are exact; starts no ranks and needs neither a GPU nor data files."};
    std::string path;
    std::vector<std::string> overrides;
    int world = 0;
    bool as_json = false, plan_only = false;
    app.add_option("--config", path, "JSON file that describes the run")->required();
    app.add_option("--set", overrides, "KEY=VALUE: replaces one value (repeatable)")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.add_option("--world", world, "number of ranks (default: parallel.mesh of the file, else 1)")
        ->check(CLI::Range(1, 1 << 20));
    app.add_flag("--plan-only", plan_only, "owner map and balance only, no rehearsal");
    app.add_flag("--json", as_json, "print JSON");
    app.set_version_flag("--version", std::string(version()));
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::configuration);
    }
    try {
        runtime::TrainConfig config = runtime::parse_train_config(path, overrides);
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
            return finish_output();
        }
        std::cout << runtime::owner_table(run);
        if (!plan_only) std::cout << runtime::algorithm_table(run) << runtime::rank_table(rehearsals);
        std::cout << runtime::balance_line(runtime::balance(runtime::rank_loads(
            run.plan, {run.spec, run.roles, run.costs, run.mesh, config.parallel.strategy, config.parallel.planner})));
        return finish_output();
    } catch (const Error& error) {
        std::cerr << error.what() << '\n';
        return static_cast<int>(error.code());
    } catch (const std::bad_alloc&) {
        std::cerr << "memory: the machine has none left for the tables of this plan\n";
        return static_cast<int>(ExitCode::unexpected);
    }
}
