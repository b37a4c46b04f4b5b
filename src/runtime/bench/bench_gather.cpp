#include "mfsdp/base/stopwatch.h"
#include "mfsdp/runtime/bench/benchmarks.h"

#include "runtime/bench/bench_run.h"
#include "runtime/bench/exchange.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace mfsdp::runtime {

namespace {

using comm::BufferRole;
using device::DType;

/// Memory for every buffer that a schedule may name.
class TransferMemory {
  public:
    TransferMemory(device::Device& device, device::MemoryLedger& ledger) : device_(device), ledger_(ledger) {}

    void provide(BufferRole role, std::int64_t bytes) {
        device::Buffer& buffer = buffers_[static_cast<std::size_t>(role)];
        if (buffer.bytes() < bytes) {
            buffer = device::Buffer(device_, ledger_, device::MemoryCategory::transfer, bytes);
        }
        addresses_[role] = buffer.data();
    }
    [[nodiscard]] const comm::TransferBuffers& addresses() const { return addresses_; }

  private:
    device::Device& device_;
    device::MemoryLedger& ledger_;
    std::array<device::Buffer, comm::kBufferRoles> buffers_;
    comm::TransferBuffers addresses_;
};

/// Runs one schedule again and again, all ranks at once; times are the slowest rank's.
class TransferTimer {
  public:
    TransferTimer(const BenchContext& context, comm::Executor& executor) : context_(context), executor_(executor) {}

    struct Figures {
        Timing timing;
        std::int64_t moved = 0;  ///< bytes sent by all ranks in one run
    };
    Figures run(const comm::TransferSchedule& schedule, comm::Lane lane, const comm::TransferBuffers& buffers) {
        const auto once = [&] {
            meet(context_.communicator);
            const double begin = base::now_seconds();
            executor_.start(schedule, lane, buffers, {}).wait();
            return largest_over_ranks(context_.communicator, base::now_seconds() - begin);
        };
        const auto before = executor_.totals();
        static_cast<void>(once());  // warms up, and tells how often there is time for
        const auto after = executor_.totals();
        const std::size_t index = static_cast<std::size_t>(lane);
        Figures figures;
        figures.moved = sum_over_ranks(context_.communicator, after.bytes_sent[index] - before.bytes_sent[index]);
        const int repeats = repeats_for(once());
        std::vector<double> times;
        for (int i = 0; i < repeats; ++i) times.push_back(once());
        figures.timing = timing_of(std::move(times));
        return figures;
    }

  private:
    /// The same on all ranks, since the time is that of all ranks.
    [[nodiscard]] int repeats_for(double seconds) const {
        const TimingOptions& options = context_.timing;
        const double wanted = options.seconds / std::max(seconds, 1e-6);
        return std::clamp(static_cast<int>(std::min(wanted, 1e6)), options.least_repeats, options.most_repeats);
    }

    const BenchContext& context_;
    comm::Executor& executor_;
};

}  // namespace

BenchTable bench_gather(const BenchContext& context, const TrainConfig& wanted) {
    comm::Communicator& communicator = context.communicator;
    TrainConfig config = wanted;
    config.device = choice_of(context.machine);
    const int rank = communicator.rank();
    RunPlan plan = make_run_plan(config, communicator.node_of_rank());
    choose_transfers(plan);
    const StoreOptions& options = plan.engine.store;
    const int contributors = static_cast<int>(std::min<std::int64_t>(communicator.size(), plan.engine.micro_batches));

    BenchTable table{.benchmark = "gather"};
    table.fact("configuration", config.source_path);
    table.fact("weights and leaves",
               std::string(device::name(options.param_dtype)) + ", " + std::string(device::name(options.grad_dtype)));
    table.columns = {{"group", "group"},
                     {"transfer", "transfer"},
                     {"algorithm", "algorithm"},
                     {"planned_bytes", "planned MB", 1e-6, 2},
                     {"moved_bytes", "moved MB", 1e-6, 2},
                     {"median_seconds", "median ms", 1e3, 3},
                     {"least_seconds", "least ms", 1e3, 3},
                     {"bytes_per_second_per_rank", "GB/s per rank", 1e-9, 2},
                     {"modelled_seconds", "modelled ms", 1e3, 3}};
    device::MemoryLedger ledger;
    TransferMemory memory(context.device, ledger);
    const std::unique_ptr<comm::Executor> executor = make_bench_executor(context, config);
    TransferTimer timer(context, *executor);
    const auto measure = [&](const std::string& group, const std::string& transfer, const std::string& algorithm,
                             const comm::TransferSchedule& schedule, comm::Lane lane) {
        memory.provide(BufferRole::scratch, schedule.scratch_bytes);
        const TransferTimer::Figures figures = timer.run(schedule, lane, memory.addresses());
        const std::int64_t planned = sum_over_ranks(communicator, schedule.bytes_sent());
        const double modelled = largest_over_ranks(communicator, options.links.seconds(schedule, rank, plan.mesh));
        table.row({group, transfer, algorithm, planned, figures.moved, figures.timing.median_seconds,
                   figures.timing.least_seconds,
                   static_cast<double>(planned) / communicator.size() / figures.timing.median_seconds, modelled});
    };
    for (std::size_t g = 0; g < plan.plan.groups.size(); ++g) {
        const GroupLayout layout(plan.spec, plan.plan, static_cast<std::int64_t>(g));
        memory.provide(BufferRole::shard, layout.at_rest_elements(rank) * device::size_of(options.param_dtype));
        memory.provide(BufferRole::gathered, layout.gathered_elements(rank) * device::size_of(options.param_dtype));
        memory.provide(BufferRole::gradient, layout.leaf_elements() * device::size_of(options.grad_dtype));
        memory.provide(BufferRole::accumulator, layout.gradient_elements(rank) * device::size_of(DType::float32));
        const comm::GatherAlgorithm algorithm = options.algorithms[g].gather;
        measure(layout.name(), "gather", std::string(comm::name(algorithm)),
                comm::build_gather(algorithm, layout.gather(options.param_dtype), rank, options.build),
                comm::Lane::gather);
        measure(
            layout.name(), "reduce", std::string(comm::name(options.reduce)),
            comm::build_sum(options.reduce, layout.reduce(options.grad_dtype, contributors, true), rank, options.build),
            comm::Lane::reduce);
    }
    return table;
}

}  // namespace mfsdp::runtime
