#include "mfsdp/runtime/bench/benchmarks.h"

#include "runtime/bench/bench_run.h"
#include "runtime/bench/exchange.h"
#include "runtime/bench/work_rates.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace mfsdp::runtime {

namespace {

/// Times of the measured steps, the slowest rank's part by part.
struct StepFigures {
    std::vector<double> forward, backward, optimizer, mean_optimizer, exposed, step;
    GlobalFacts last;
};

/// One step to warm up, `steps` that count, and one more, whose agreement brings the last optimizer time. `between` is
/// called before each of them.
StepFigures run_steps(
    BenchRun& run, int steps, const std::function<void()>& between = [] {}) {
    StepFigures figures;
    run.step(1);
    for (int i = 0; i <= steps; ++i) {
        between();
        const GlobalFacts facts = run.step(i + 2).facts;
        if (i > 0) {
            figures.optimizer.push_back(facts.longest.optimizer_seconds);
            figures.mean_optimizer.push_back(facts.mean_optimizer_seconds);
            // From agreement to agreement: the optimizer of the step before and everything else of this one.
            figures.step.push_back(facts.longest.step_seconds);
        }
        if (i == steps) break;
        figures.forward.push_back(facts.longest.forward_seconds);
        figures.backward.push_back(facts.longest.backward_seconds);
        figures.exposed.push_back(facts.longest.exposed_communication_seconds);
        figures.last = facts;
    }
    run.engine().settle();
    return figures;
}

/// What all ranks' devices reach together, each measured while the others are measured too.
double peak_of_ranks(const BenchContext& context, const RunPlan& plan) {
    meet(context.communicator);
    const MachinePeak peak = measure_peak(context.device, plan.engine.store.param_dtype, context.timing);
    return sum_over_ranks(context.communicator, peak.flops_per_second);
}

const std::vector<BenchColumn> kPartColumns = {{"part", "part"},
                                               {"median_seconds", "median ms", 1e3, 2},
                                               {"least_seconds", "least ms", 1e3, 2},
                                               {"share_of_step", "% of step", 1e2, 1},
                                               {"flops", "GFLOP", 1e-9, 2},
                                               {"flops_per_second", "GFLOP/s", 1e-9, 1},
                                               {"share_of_peak", "% of peak", 1e2, 1}};

/// One part of a step; flops < 0: none are counted for it.
void add_part(BenchTable& table, const std::string& part, const std::vector<double>& seconds, double step_seconds,
              std::int64_t flops, double peak) {
    const Timing timing = timing_of(seconds);
    BenchValue work, rate, share;
    if (flops >= 0) {
        const double speed = static_cast<double>(flops) / timing.median_seconds;
        work = flops;
        rate = speed;
        share = speed / peak;
    }
    table.row(
        {part, timing.median_seconds, timing.least_seconds, timing.median_seconds / step_seconds, work, rate, share});
}

void add_traffic(BenchTable& table, const std::string& what, std::int64_t moved, std::int64_t planned) {
    table.fact(what + " bytes moved", moved);
    table.fact(what + " bytes planned", planned);
}

std::vector<double> sums(const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> result;
    for (std::size_t i = 0; i < a.size(); ++i) result.push_back(a[i] + b[i]);
    return result;
}

void add_plan_facts(BenchTable& table, const BenchContext& context, BenchRun& run, const GlobalFacts& facts) {
    comm::Communicator& communicator = context.communicator;
    const Rehearsal& planned = run.rehearsal();
    add_traffic(table, "gather", facts.gather_bytes,
                sum_over_ranks(communicator, planned.transfers.bytes_sent[0] - planned.optimizer_bytes_sent));
    add_traffic(table, "reduce", facts.reduce_bytes, sum_over_ranks(communicator, planned.transfers.bytes_sent[1]));
    add_traffic(table, "optimizer", facts.optimizer_bytes, sum_over_ranks(communicator, planned.optimizer_bytes_sent));
    table.fact("memory of a rank, bytes", facts.memory_peak_bytes);
    table.fact("memory of a rank planned, bytes", largest_over_ranks(communicator, planned.total_memory()));
}

/// At which sizes the kinds of work of this rank's optimizer are timed: the block with the most products, and its
/// longer side with a factor.
WorkSizes work_sizes(const BenchContext& context, const RunPlan& run, device::DType product_dtype) {
    const OptimizerSetup& optimizer = run.engine.optimizer;
    WorkSizes sizes{.shorter = 512, .longer = 512, .product_dtype = product_dtype};  // nothing but AdamW
    std::int64_t most = 0;
    for (std::size_t i = 0; i < run.roles.size(); ++i) {
        const model::ParameterSpec& spec = run.spec.parameters[i];
        sizes.bytes += 16 * spec.count() / run.plan.ranks;
        if (run.roles[i] != optim::Role::matrix) continue;
        std::vector<model::RowBlock> blocks = optimizer.blocks[i];
        if (blocks.empty()) blocks = {{"", 0, spec.rows()}};
        for (const model::RowBlock& block : blocks) {
            const optim::OptimizerCost cost = optimizer.matrix->cost(block.row_count, spec.columns());
            if (cost.step.product_flops <= most) continue;
            most = cost.step.product_flops;
            sizes.shorter = std::min(block.row_count, spec.columns());
            sizes.longer = std::max(block.row_count, spec.columns());
            sizes.eigen = cost.refresh.eigen_flops > 0;
            sizes.orthogonal = cost.refresh.orthogonal_flops > 0;
            sizes.side = factor_side(*optimizer.matrix, block.row_count, spec.columns());
        }
    }
    sizes.tasks = std::clamp<std::int64_t>(context.threads, 1, device::kMaxTasks);
    return sizes;
}

double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The time that the planner's costs and the measured rates give for the steps that were measured.
void add_prediction(BenchTable& table, const BenchContext& context, const RunPlan& run, const WorkProbes& probes,
                    const StepFigures& figures, int steps) {
    const optim::WorkRates rates = probes.rates();
    double predicted = 0.0;
    for (std::int64_t step = 2; step < 2 + steps; ++step) {
        const double mine = optimizer_cost(run, context.communicator.rank(), step).seconds(rates);
        predicted += largest_over_ranks(context.communicator, mine) / steps;
    }
    const double measured = mean(figures.optimizer);
    table.fact("products, FLOP/s of a rank", rates.product_flops);
    table.fact("elementwise work, bytes/s of a rank", rates.element_bytes);
    if (rates.eigen_flops > 0.0) table.fact("eigen-decompositions, FLOP/s of a rank", rates.eigen_flops);
    if (rates.orthogonal_flops > 0.0) table.fact("QR, FLOP/s of a rank", rates.orthogonal_flops);
    table.fact("mean seconds of the slowest rank, measured", measured);
    table.fact("mean seconds of the slowest rank, predicted", predicted);
    table.fact("measured / predicted", measured / predicted);
}

}  // namespace

BenchTable bench_step(const BenchContext& context, const TrainConfig& config, int steps) {
    // Parts are timed by waiting for their ends, which an asynchronous device does not do in training: the step as a
    // whole is measured by itself there.
    std::optional<StepFigures> whole;
    if (context.machine.kind == device::DeviceKind::cuda) {
        BenchRun run(context, config, false);
        whole = run_steps(run, steps);
    }
    BenchRun run(context, config, true);
    const double peak = peak_of_ranks(context, run.plan());
    StepFigures figures = run_steps(run, steps);
    if (whole) figures.step = whole->step;
    const std::int64_t model_flops = sum_over_ranks(context.communicator, run.rehearsal().model_flops);
    const std::int64_t optimizer_flops = sum_over_ranks(context.communicator, run.rehearsal().optimizer_flops);

    BenchTable table{.benchmark = "step", .columns = kPartColumns};
    const double step_seconds = timing_of(figures.step).median_seconds;
    const std::int64_t tokens = config.train.global_batch_size * config.train.seq_len;
    table.fact("configuration", config.source_path);
    table.fact("steps measured", std::int64_t{steps});
    table.fact("tokens of a step", tokens);
    table.fact("tokens/s", static_cast<double>(tokens) / step_seconds);
    table.fact("peak of products on all ranks, FLOP/s", peak);
    table.fact("MFU, forward and backward FLOPs / (step time x peak)",
               static_cast<double>(model_flops) / (step_seconds * peak));
    add_plan_facts(table, context, run, figures.last);
    add_part(table, "forward", figures.forward, step_seconds, -1, peak);
    add_part(table, "backward", figures.backward, step_seconds, -1, peak);
    add_part(table, "forward and backward", sums(figures.forward, figures.backward), step_seconds, model_flops, peak);
    add_part(table, "optimizer", figures.optimizer, step_seconds, optimizer_flops, peak);
    add_part(table, "waiting for transfers", figures.exposed, step_seconds, -1, peak);
    add_part(table, "step", figures.step, step_seconds, model_flops + optimizer_flops, peak);
    return table;
}

BenchTable bench_optimizer(const BenchContext& context, const TrainConfig& config, int steps) {
    constexpr std::int64_t kTokens = 16;
    TrainConfig small = config;
    small.optimizer.matrix.shampoo.start_step = 1;  // roots from the step that warms up on, as in a long run
    small.train.seq_len = std::min(config.train.seq_len, kTokens);
    small.train.micro_batch_size = 1;
    small.train.global_batch_size = context.communicator.size();
    BenchRun run(context, small, true);
    const double peak = peak_of_ranks(context, run.plan());
    const bool muon = config.optimizer.matrix.name == MatrixOptimizerName::muon;
    const device::DType dtype = muon ? config.optimizer.matrix.muon.ns_dtype : device::DType::float32;
    WorkProbes probes(context.device, work_sizes(context, run.plan(), dtype));
    const StepFigures figures = run_steps(run, steps, [&] { probes.measure(least_seconds(context.timing)); });
    const std::vector<std::int64_t> flops = all_values(context.communicator, run.rehearsal().optimizer_flops);
    const std::int64_t total = std::accumulate(flops.begin(), flops.end(), std::int64_t{0});
    const double mean_flops = static_cast<double>(total) / static_cast<double>(flops.size());

    BenchTable table{.benchmark = "optimizer", .columns = kPartColumns};
    const double slowest = timing_of(figures.optimizer).median_seconds;
    table.fact("configuration", config.source_path);
    table.fact("steps measured", std::int64_t{steps});
    table.fact("peak of products on all ranks, FLOP/s", peak);
    table.fact(
        "imbalance of FLOPs, maximum / mean",
        mean_flops > 0.0 ? static_cast<double>(*std::max_element(flops.begin(), flops.end())) / mean_flops : 1.0);
    table.fact("imbalance of time, maximum / mean", slowest / timing_of(figures.mean_optimizer).median_seconds);
    add_traffic(table, "optimizer", figures.last.optimizer_bytes,
                sum_over_ranks(context.communicator, run.rehearsal().optimizer_bytes_sent));
    add_prediction(table, context, run.plan(), probes, figures, steps);
    add_part(table, "slowest rank", figures.optimizer, slowest, total, peak);
    add_part(table, "mean of ranks", figures.mean_optimizer, slowest, total, peak);
    return table;
}

}  // namespace mfsdp::runtime
