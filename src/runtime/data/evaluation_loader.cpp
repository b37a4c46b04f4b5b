#include "mfsdp/runtime/data/evaluation_loader.h"

#include "mfsdp/base/error.h"

#include <cstddef>
#include <string>

namespace mfsdp::runtime {

EvaluationLoader::EvaluationLoader(const DataOptions& options, std::int64_t samples)
    : reader_(TokenStream(options.patterns, options.format, options.vocab_size), options.seq_len,
              options.mask_alignment),
      micro_batch_size_(options.micro_batch_size),
      samples_(samples == 0 ? reader_.samples() : samples) {
    MFSDP_ASSERT(samples >= 0 && micro_batch_size_ >= 1, "the configuration refuses negative counts");
    if (samples > reader_.samples()) {
        throw ConfigError("config: train.eval_samples = " + std::to_string(samples) + ": data.valid has only " +
                          std::to_string(reader_.samples()) + " samples");
    }
}

void EvaluationLoader::load(std::int64_t micro_batch, std::span<std::int32_t> inputs,
                            std::span<std::int32_t> targets) const {
    const auto length = static_cast<std::size_t>(reader_.seq_len());
    const auto rows = static_cast<std::size_t>(micro_batch_size_);
    MFSDP_ASSERT(micro_batch >= 0 && micro_batch < micro_batches(), "a micro-batch lies inside the validation set");
    MFSDP_ASSERT(inputs.size() == rows * length && targets.size() == inputs.size(), "a micro-batch has B*T tokens");
    for (std::size_t row = 0; row < rows; ++row) {
        const std::int64_t sample = micro_batch * micro_batch_size_ + static_cast<std::int64_t>(row);
        const auto row_inputs = inputs.subspan(row * length, length);
        const auto row_targets = targets.subspan(row * length, length);
        if (sample < samples_) {
            reader_.read(sample, row_inputs, row_targets);
        } else {
            reader_.read_empty(row_inputs, row_targets);
        }
    }
}

}  // namespace mfsdp::runtime
