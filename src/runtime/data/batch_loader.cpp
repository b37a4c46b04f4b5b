#include "mfsdp/runtime/data/batch_loader.h"

#include "mfsdp/base/error.h"
#include "mfsdp/runtime/data/shuffle.h"

#include <cstddef>

namespace mfsdp::runtime {

BatchLoader::BatchLoader(const DataOptions& options)
    : reader_(TokenStream(options.patterns, options.format, options.vocab_size), options.seq_len,
              options.mask_alignment),
      micro_batch_size_(options.micro_batch_size),
      global_batch_size_(options.global_batch_size),
      shuffle_(options.shuffle),
      seed_(options.seed) {
    MFSDP_ASSERT(micro_batch_size_ >= 1 && global_batch_size_ >= 1 && global_batch_size_ % micro_batch_size_ == 0,
                 "the configuration refuses a global batch that is not a multiple of the micro-batch");
}

double BatchLoader::epoch(std::int64_t next_sample) const {
    return static_cast<double>(next_sample) / static_cast<double>(samples_per_epoch());
}

std::int64_t BatchLoader::sample(std::int64_t global_sample) const {
    MFSDP_ASSERT(global_sample >= 0, "global samples count from zero");
    const std::int64_t place = global_sample % samples_per_epoch();
    if (!shuffle_) return place;
    return Shuffle(seed_, global_sample / samples_per_epoch(), samples_per_epoch()).sample(place);
}

void BatchLoader::load(std::int64_t next_sample, std::int64_t micro_batch, std::span<std::int32_t> inputs,
                       std::span<std::int32_t> targets) const {
    const auto length = static_cast<std::size_t>(reader_.seq_len());
    const auto rows = static_cast<std::size_t>(micro_batch_size_);
    MFSDP_ASSERT(micro_batch >= 0 && micro_batch < micro_batches(), "a micro-batch lies inside its global batch");
    MFSDP_ASSERT(inputs.size() == rows * length && targets.size() == inputs.size(), "a micro-batch has B*T tokens");
    const std::int64_t first = next_sample + micro_batch * micro_batch_size_;
    for (std::size_t row = 0; row < rows; ++row) {
        reader_.read(sample(first + static_cast<std::int64_t>(row)), inputs.subspan(row * length, length),
                     targets.subspan(row * length, length));
    }
}

void BatchLoader::raise_all_masked(std::int64_t next_sample) const {
    throw DataError("data: samples " + std::to_string(next_sample) + ".." +
                    std::to_string(next_sample + global_batch_size_ - 1) + " have no unmasked target");
}

}  // namespace mfsdp::runtime
