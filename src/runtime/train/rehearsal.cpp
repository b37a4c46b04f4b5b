#include "mfsdp/runtime/train/rehearsal.h"

#include "mfsdp/base/counted.h"
#include "mfsdp/base/error.h"
#include "mfsdp/device/counting_device.h"
#include "mfsdp/runtime/train/report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include <unistd.h>

namespace mfsdp::runtime {

namespace {

/// The rehearsal's answer to the agreement; it also notes where forward and backward end and the optimizer begins.
class ObservedAgreement final : public Agreement {
  public:
    ObservedAgreement(std::int64_t targets, const device::CountingDevice& device) : answer_(targets), device_(device) {}

    [[nodiscard]] GlobalFacts exchange(const LocalFacts& local) override {
        flops_before_optimizer_ = device_.total().flops;
        return answer_.exchange(local);
    }
    [[nodiscard]] std::int64_t flops_before_optimizer() const { return flops_before_optimizer_; }

  private:
    RehearsedAgreement answer_;
    const device::CountingDevice& device_;
    std::int64_t flops_before_optimizer_ = 0;
};

}  // namespace

std::int64_t Rehearsal::total_memory() const { return std::accumulate(memory.begin(), memory.end(), std::int64_t{0}); }

Rehearsal rehearse(const RunPlan& run, int rank) {
    const std::unique_ptr<device::CountingDevice> device = device::make_counting_device({});
    const std::unique_ptr<comm::Executor> executor =
        comm::make_counting_executor(rank, run.mesh, run.engine.store.links);
    const std::int64_t targets = run.engine.micro_batches * run.engine.micro_batch_size * run.engine.sequence_length;
    ObservedAgreement agreement(targets, *device);
    Engine engine({run.spec, run.plan, run.mesh, rank, *device, *executor, agreement}, run.engine, PoolSizes{});
    device->reset_total();
    executor->reset_totals();
    const double begin = engine.compute().record().modelled_seconds;
    const LoadMicroBatch no_tokens = [](std::int64_t, std::span<std::int32_t>, std::span<std::int32_t>) {};
    engine.step(1, 1.0, no_tokens);

    Rehearsal result;
    result.transfers = executor->totals();
    for (const comm::TransferSchedule* schedule : engine.weights().publish_schedules()) {
        result.optimizer_bytes_sent += schedule->bytes_sent();
    }
    result.model_flops = agreement.flops_before_optimizer();
    result.step_seconds = engine.compute().record().modelled_seconds - begin;

    // Refreshes come in later steps, with work and scratch of their own.
    double mean_flops = 0.0;
    for (const OptimizerStepCost& step : engine.rehearse_optimizer([&] { return device->total(); })) {
        mean_flops += step.share * static_cast<double>(step.flops);
        if (step.share > 0.0) result.optimizer_worst_flops = std::max(result.optimizer_worst_flops, step.flops);
    }
    result.optimizer_flops = std::llround(mean_flops);

    // What stands between steps needs pools too.
    if (run.engine.evaluates) static_cast<void>(engine.evaluate(run.plan.ranks, no_tokens));
    if (run.engine.generates) {
        const std::vector<std::int32_t> tokens(static_cast<std::size_t>(run.engine.sequence_length));
        static_cast<void>(engine.next_token(tokens));
    }
    if (run.engine.measures_health) {
        std::vector<MatrixHealth> health;
        engine.step(2, 1.0, no_tokens, &health);
    }
    for (std::int64_t category = 0; category < device::kMemoryCategories; ++category) {
        result.memory[static_cast<std::size_t>(category)] =
            engine.memory().peak(static_cast<device::MemoryCategory>(category));
    }
    result.pools = engine.high_water();
    result.peak_gathered_bytes = engine.weights().peak_gathered_bytes();
    return result;
}

std::int64_t machine_memory() { return std::int64_t{sysconf(_SC_PHYS_PAGES)} * std::int64_t{sysconf(_SC_PAGESIZE)}; }

void require_memory(const Rehearsal& rehearsal, std::int64_t ranks_on_node) {
    const std::int64_t machine = machine_memory();
    if (rehearsal.total_memory() <= machine / ranks_on_node) return;
    throw ConfigError("memory: " + base::counted(ranks_on_node, "rank") + " on this machine, which has " +
                      bytes_text(machine) + "; " + describe_memory(rehearsal) +
                      "; use a smaller train.micro_batch_size or more machines (mfsdp-plan shows what fits)");
}

}  // namespace mfsdp::runtime
