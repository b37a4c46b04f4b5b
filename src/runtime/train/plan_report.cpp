#include "mfsdp/runtime/train/plan_report.h"

#include "mfsdp/base/counted.h"
#include "mfsdp/base/error.h"
#include "mfsdp/runtime/config/names.h"
#include "mfsdp/runtime/train/report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

namespace mfsdp::runtime {

namespace {

using nlohmann::json;

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
constexpr double kMostGibibytes = 1e9;  // bytes stay inside int64

std::string fit_text(const PlanReport& report) {
    const Fit& fit = *report.fit;
    std::string text = "memory of a rank: " + bytes_text(fit.limit_bytes);
    if (!report.searched) {
        text.append(" (this machine's, for ")
            .append(base::counted(report.run.plan.ranks, "rank"))
            .append("; --memory-gib asks about others)");
    }
    text.append("\n  does it fit: ").append(fit.fits() ? "yes" : "no");
    text.append("; rank ")
        .append(std::to_string(fit.largest_rank))
        .append(" needs most, ")
        .append(bytes_text(fit.largest_bytes));
    if (!fit.fits()) {
        text.append("; ")
            .append(std::to_string(fit.ranks_beyond))
            .append(" of ")
            .append(base::counted(report.run.plan.ranks, "rank"))
            .append(fit.ranks_beyond == 1 ? " needs" : " need")
            .append(" more than there is");
    }
    return text + "\n";
}

std::string micro_batch_text(const PlanReport& report) {
    std::string text = "  largest train.micro_batch_size that fits: ";
    if (!report.largest_micro_batch) return text + "none, not even 1\n";
    const std::int64_t size = report.largest_micro_batch->micro_batch_size;
    const std::int64_t micro_batches = report.config.train.global_batch_size / size;
    const std::int64_t ranks = report.run.plan.ranks;
    const std::int64_t micro_steps = (micro_batches + ranks - 1) / ranks;
    text.append(std::to_string(size)).append(" (a divisor of train.global_batch_size = ");
    text.append(std::to_string(report.config.train.global_batch_size))
        .append("), in ")
        .append(base::counted(micro_steps, "micro-step"))
        .append("; ")
        .append(bytes_text(report.largest_micro_batch->fit.largest_bytes));
    if (const std::int64_t idle = micro_steps * ranks - micro_batches; idle > 0)
        text += "; " + describe_idle(idle, micro_steps * ranks);
    return text + "\n";
}

std::string ranks_text(const PlanReport& report) {
    std::string text = "  fewest ranks that fit: ";
    if (!report.fewest_ranks) return text + "none up to 1024\n";
    const RanksFit& found = *report.fewest_ranks;
    return text.append(std::to_string(found.ranks))
        .append("; ")
        .append(bytes_text(found.fit.largest_bytes))
        .append("\n");
}

json answers_json(const PlanReport& report) {
    const Fit& fit = *report.fit;
    json answers{{"memory_limit_bytes", fit.limit_bytes},
                 {"fits", fit.fits()},
                 {"largest_rank", fit.largest_rank},
                 {"largest_bytes", fit.largest_bytes},
                 {"ranks_beyond", fit.ranks_beyond}};
    if (!report.searched) return answers;
    answers["largest_micro_batch"] = nullptr;
    if (const auto& found = report.largest_micro_batch) {
        answers["largest_micro_batch"] = {{"micro_batch_size", found->micro_batch_size},
                                          {"largest_bytes", found->fit.largest_bytes}};
    }
    answers["fewest_ranks"] = nullptr;
    if (const auto& found = report.fewest_ranks) {
        answers["fewest_ranks"] = {{"ranks", found->ranks}, {"largest_bytes", found->fit.largest_bytes}};
    }
    return answers;
}

}  // namespace

PlanReport make_plan_report(const TrainConfig& config, const PlanQuestion& question) {
    PlanReport report;
    report.config = config;
    MeshConfig& mesh = report.config.parallel.mesh;
    const std::int64_t ranks = question.ranks > 0 ? question.ranks : mesh.replicate * mesh.shard.value_or(1);
    if (question.ranks > 0) mesh.shard = ranks / mesh.replicate;
    report.run = make_run_plan(report.config, std::vector<int>(static_cast<std::size_t>(ranks), 0));
    if (!question.rehearses) return report;
    choose_transfers(report.run);
    report.rehearsals = rehearse_all(report.run);
    report.searched = question.memory_gib.has_value();
    const std::int64_t limit = report.searched
                                   ? std::llround(std::min(*question.memory_gib, kMostGibibytes) * kGibibyte)
                                   : machine_memory() / ranks;
    report.fit = fit(report.rehearsals, limit);
    if (!report.searched) return report;
    report.largest_micro_batch = largest_micro_batch(report.config, ranks, limit);
    report.fewest_ranks = fewest_ranks(report.config, limit);
    return report;
}

std::string plan_text(const PlanReport& report) {
    const RunPlan& run = report.run;
    const TrainConfig& config = report.config;
    std::string text = owner_table(run);
    if (!report.rehearsals.empty()) text += algorithm_table(run) + rank_table(report.rehearsals);
    text += balance_line(balance(rank_loads(
        run.plan, {run.spec, run.roles, run.costs, run.mesh, config.parallel.strategy, config.parallel.planner})));
    if (report.fit) text += fit_text(report);
    if (report.searched) text += micro_batch_text(report) + ranks_text(report);
    return text;
}

std::string plan_json(const PlanReport& report) {
    const RunPlan& run = report.run;
    const TrainConfig& config = report.config;
    json document{{"ranks", run.plan.ranks},
                  {"strategy", name(config.parallel.strategy)},
                  {"policy", name(config.parallel.planner.policy)},
                  {"parameters", run.spec.parameter_count()},
                  {"plan_hash", run.plan.hash(run.spec)}};
    for (const MatrixShard& shard : run.plan.shards) {
        json segments = json::array();
        for (const comm::Segment& segment : (shard.frozen() ? shard.at_rest : shard.gradient).segments) {
            segments.push_back({segment.rank, segment.row_begin, segment.row_count});
        }
        document["segments"][run.spec.parameters[static_cast<std::size_t>(shard.parameter)].name] = std::move(segments);
    }
    document["per_rank"] = json::array();
    for (const Rehearsal& rank : report.rehearsals) {
        json memory;
        for (std::int64_t category = 0; category < device::kMemoryCategories; ++category) {
            memory[std::string(device::name(static_cast<device::MemoryCategory>(category)))] =
                rank.memory[static_cast<std::size_t>(category)];
        }
        document["per_rank"].push_back({{"memory_bytes", std::move(memory)},
                                        {"memory_total_bytes", rank.total_memory()},
                                        {"gather_sent_bytes", rank.transfers.bytes_sent[0] - rank.optimizer_bytes_sent},
                                        {"gather_received_bytes", rank.transfers.bytes_received[0]},
                                        {"reduce_sent_bytes", rank.transfers.bytes_sent[1]},
                                        {"reduce_received_bytes", rank.transfers.bytes_received[1]},
                                        {"optimizer_sent_bytes", rank.optimizer_bytes_sent},
                                        {"model_flops", rank.model_flops},
                                        {"optimizer_flops", rank.optimizer_flops},
                                        {"optimizer_worst_flops", rank.optimizer_worst_flops},
                                        {"modelled_step_seconds", rank.step_seconds}});
    }
    if (report.fit) document["answers"] = answers_json(report);
    return document.dump(2) + "\n";
}

}  // namespace mfsdp::runtime
