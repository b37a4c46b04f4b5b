// mfsdp-plan: shows where everything would live and what a step would cost, without ranks, GPU or data.

#include "mfsdp/runtime/config/parse_config.h"
#include "mfsdp/runtime/train/plan_report.h"

#include "program.h"

#include <iostream>

int main(int argc, char** argv) {
    using namespace mfsdp;
    CLI::App app{
        "Plans a run and rehearses one step of every rank on a device that only counts.\n"
        "Memory, bytes and FLOPs are exact; starts no ranks and needs neither a GPU nor data files.\n"
        "device = auto is planned as cpu: for GPUs say --set device=cuda."};
    apps::ConfigArguments arguments;
    arguments.add_to(app);
    runtime::PlanQuestion question;
    bool as_json = false, plan_only = false;
    app.add_option("--world", question.ranks, "number of ranks (default: parallel.mesh of the file, else 1)")
        ->check(CLI::Range(1, 1 << 20));
    auto* const memory =
        app.add_option("--memory-gib", question.memory_gib,
                       "memory of a rank in GiB: tells whether the run fits, the largest train.micro_batch_size that\n"
                       "would, and the fewest ranks (default: whether it fits into this machine)")
            ->check(apps::kPositive);
    app.add_flag("--plan-only", plan_only, "owner map and balance only, no rehearsal")->excludes(memory);
    app.add_flag("--json", as_json, "print JSON");
    apps::add_common_options(app, "mfsdp-plan");
    if (const auto code = apps::parse_arguments(app, argc, argv)) return *code;

    return apps::run_alone([&] {
        question.rehearses = !plan_only;
        const runtime::PlanReport report =
            runtime::make_plan_report(runtime::parse_train_config(arguments.path, arguments.overrides), question);
        std::cout << (as_json ? runtime::plan_json(report) : runtime::plan_text(report));
    });
}
