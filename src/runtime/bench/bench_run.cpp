#include "runtime/bench/bench_run.h"

#include "mfsdp/runtime/train/launch.h"

#include <algorithm>
#include <utility>

namespace mfsdp::runtime {

std::unique_ptr<comm::Executor> make_bench_executor(const BenchContext& context, const TrainConfig& config) {
    return make_executor(context.machine, config, context.communicator, context.device);
}

BenchRun::BenchRun(const BenchContext& context, const TrainConfig& wanted, bool times_parts) {
    comm::Communicator& communicator = context.communicator;
    TrainConfig config = wanted;
    config.device = choice_of(context.machine);
    run_together(communicator, [&] {
        const std::vector<int> nodes = communicator.node_of_rank();
        plan_ = std::make_unique<RunPlan>(make_run_plan(config, nodes));
        plan_->engine.evaluates = plan_->engine.generates = plan_->engine.measures_health = false;
        plan_->engine.times_parts = times_parts;
        choose_transfers(*plan_);
        rehearsal_ = rehearse(*plan_, communicator.rank());
        const auto rank = static_cast<std::size_t>(communicator.rank());
        if (context.machine.kind == device::DeviceKind::cpu) {
            require_memory(rehearsal_, std::count(nodes.begin(), nodes.end(), nodes[rank]));
        }
    });
    run_together(communicator, [&] {
        executor_ = make_bench_executor(context, config);
        agreement_ = std::make_unique<RankAgreement>(communicator, plan_->engine.micro_batches);
        engine_ = std::make_unique<Engine>(Engine::Parts{plan_->spec, plan_->plan, plan_->mesh, communicator.rank(),
                                                         context.device, *executor_, *agreement_},
                                           plan_->engine, rehearsal_.pools);
    });
    engine_->weights().initialise(static_cast<std::uint64_t>(config.train.seed));
}

StepResult BenchRun::step(std::int64_t number) {
    const auto limit = static_cast<std::uint64_t>(plan_->spec.config.vocab_size);
    const auto load = [&](std::int64_t micro_batch, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
        std::uint64_t state = static_cast<std::uint64_t>(number * 1000003 + micro_batch);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's linear congruential generator
            inputs[i] = static_cast<std::int32_t>((state >> 33U) % limit);
            targets[i] = static_cast<std::int32_t>((state >> 40U) % limit);
        }
    };
    return engine_->step(number, 1.0, load);
}

}  // namespace mfsdp::runtime
