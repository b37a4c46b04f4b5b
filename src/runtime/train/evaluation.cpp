#include "mfsdp/runtime/train/evaluation.h"

#include "mfsdp/base/stopwatch.h"
#include "mfsdp/runtime/train/launch.h"

namespace mfsdp::runtime {

Evaluation evaluate(Engine& engine, comm::Communicator& communicator, const ValidationLoader& loader) {
    Evaluation result;
    {
        const base::Stopwatch watch(result.seconds);
        const std::vector<MicroBatchLoss> mine =
            engine.evaluate(loader.micro_batches(),
                            [&](std::int64_t micro_batch, std::span<std::int32_t> inputs,
                                std::span<std::int32_t> targets) { loader.load(micro_batch, inputs, targets); });
        const MicroBatchLoss total = gather_losses(communicator, loader.micro_batches(), mine);
        result.targets = total.targets;
        if (total.targets > 0) result.loss = total.sum / static_cast<double>(total.targets);
    }
    if (result.targets == 0) {
        throw AgreedFailure(ExitCode::data, "data: the validation set (data.valid) has no unmasked target");
    }
    return result;
}

}  // namespace mfsdp::runtime
