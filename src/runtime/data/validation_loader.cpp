#include "mfsdp/runtime/data/validation_loader.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <cstddef>

namespace mfsdp::runtime {

ValidationLoader::ValidationLoader(const DataOptions& options, std::int64_t samples)
    : reader_(TokenStream(options.patterns, options.format, options.vocab_size), options.seq_len,
              options.mask_alignment),
      micro_batch_size_(options.micro_batch_size),
      samples_(samples == 0 ? reader_.samples() : samples) {
    if (samples_ > reader_.samples()) {
        throw ConfigError("config: train.eval_samples = " + std::to_string(samples) + ": data.valid has " +
                          std::to_string(reader_.samples()) +
                          " sequences of train.seq_len = " + std::to_string(options.seq_len));
    }
}

void ValidationLoader::load(std::int64_t micro_batch, std::span<std::int32_t> inputs,
                            std::span<std::int32_t> targets) const {
    const auto length = static_cast<std::size_t>(reader_.seq_len());
    const auto rows = static_cast<std::size_t>(micro_batch_size_);
    MFSDP_ASSERT(micro_batch >= 0 && micro_batch < micro_batches(), "a micro-batch lies inside its set");
    MFSDP_ASSERT(inputs.size() == rows * length && targets.size() == inputs.size(), "a micro-batch has B*T tokens");
    for (std::size_t row = 0; row < rows; ++row) {
        const std::int64_t sample = micro_batch * micro_batch_size_ + static_cast<std::int64_t>(row);
        const std::span<std::int32_t> in = inputs.subspan(row * length, length);
        const std::span<std::int32_t> out = targets.subspan(row * length, length);
        if (sample < samples_) {
            reader_.read(sample, in, out);
        } else {
            std::fill(in.begin(), in.end(), 0);
            std::fill(out.begin(), out.end(), kMaskedTarget);
        }
    }
}

}  // namespace mfsdp::runtime
