#include "model/rotary_memory.h"

#include <cmath>
#include <vector>

namespace mfsdp::model {

RotaryMemory::RotaryMemory(const ModelConfig& config, std::int64_t sequence_length, device::MemoryLedger& ledger,
                           device::Stream& stream) {
    if (config.family == ModelFamily::gpt2) return;
    const std::int64_t pairs = config.head_dim / 2;
    const std::int64_t count = sequence_length * pairs;
    std::vector<float> cosine(static_cast<std::size_t>(count));
    std::vector<float> sine(static_cast<std::size_t>(count));
    for (std::int64_t position = 0; position < sequence_length; ++position) {
        for (std::int64_t pair = 0; pair < pairs; ++pair) {
            const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(config.head_dim);
            const double angle = static_cast<double>(position) * std::pow(config.rope_theta, exponent);
            const auto index = static_cast<std::size_t>(position * pairs + pair);
            cosine[index] = static_cast<float>(std::cos(angle));
            sine[index] = static_cast<float>(std::sin(angle));
        }
    }
    const std::int64_t bytes = device::align_up(count * device::size_of(device::DType::float32));
    memory_ = device::Buffer(stream.device(), ledger, device::MemoryCategory::workspace, 2 * bytes);
    tables_.cosine = memory_.view(device::DType::float32, {sequence_length, pairs});
    tables_.sine = memory_.view(device::DType::float32, {sequence_length, pairs}, bytes);
    device::launch(stream, device::CopyFromHost{.out = tables_.cosine, .source = cosine.data()});
    device::launch(stream, device::CopyFromHost{.out = tables_.sine, .source = sine.data()});
    stream.synchronize();  // the host vectors end here
}

}  // namespace mfsdp::model
