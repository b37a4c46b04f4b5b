#pragma once

#include "mfsdp/comm/communicator.h"
#include "mfsdp/comm/executor.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/runtime/train/rehearsal.h"

#include "support/random_order_executor.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace mfsdp::test {

/// One rank of a run, set up as the trainer does: device, executor, agreement, and an engine with rehearsed pools.
/// Weights are undefined. What it is made from must outlive it.
struct RankRun {
    /// `hub`, unless null, gives the executor: transfers one by one in a random legal order.
    RankRun(const runtime::RunPlan& run, comm::Communicator& communicator, const device::CpuDeviceOptions& options = {},
            RandomOrderHub* hub = nullptr)
        : RankRun(run, communicator, device::make_cpu_device(options), hub) {}

    /// On another device; several ranks need one whose memory the host reaches.
    RankRun(const runtime::RunPlan& run, comm::Communicator& communicator, std::unique_ptr<device::Device> on,
            RandomOrderHub* hub = nullptr)
        : rank(communicator.rank()),
          spec(run.spec),
          device(std::move(on)),
          executor(hub != nullptr ? hub->make_executor(rank, *device)
                   : communicator.size() == 1
                       ? comm::make_self_executor(*device)
                       : comm::make_progress_executor(communicator, *device, {.timeout_seconds = 60})),
          agreement(communicator, run.engine.micro_batches, run.engine.max_logits),
          engine({run.spec, run.plan, run.mesh, rank, *device, *executor, agreement}, run.engine,
                 runtime::rehearse(run, rank).pools) {}

    /// All weights by parameter index, on rank 0; empty on other ranks, which call it too.
    [[nodiscard]] std::vector<std::vector<float>> collect() {
        std::vector<std::vector<float>> weights;
        for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
            std::vector<float> values(rank == 0 ? static_cast<std::size_t>(spec.parameters[i].count()) : 0);
            engine.weights().collect(static_cast<std::int64_t>(i), values);
            if (rank == 0) weights.push_back(std::move(values));
        }
        return weights;
    }

    int rank;
    const model::ModelSpec& spec;
    std::unique_ptr<device::Device> device;
    std::unique_ptr<comm::Executor> executor;
    runtime::RankAgreement agreement;
    runtime::Engine engine;
};

}  // namespace mfsdp::test
