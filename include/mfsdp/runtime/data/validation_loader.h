#pragma once

#include "mfsdp/runtime/data/batch_loader.h"

namespace mfsdp::runtime {

/// The validation set: samples 0 .. E-1, unshuffled, in micro-batches of B consecutive samples, the last one filled
/// with empty ones (all masked), so that a sample's place in its micro-batch depends on nothing. Source:
/// docs/determinism.md, batches.
class ValidationLoader {
  public:
    /// options    patterns, format, alignment, vocabulary, T and B are read
    /// samples    E; 0: all. More than there are is a ConfigError.
    ValidationLoader(const DataOptions& options, std::int64_t samples);

    [[nodiscard]] std::int64_t samples() const noexcept { return samples_; }
    [[nodiscard]] std::int64_t micro_batches() const noexcept {
        return (samples_ + micro_batch_size_ - 1) / micro_batch_size_;
    }
    [[nodiscard]] const TokenStream& stream() const noexcept { return reader_.stream(); }

    /// Loads one micro-batch of [0, micro_batches()). inputs, targets  [B, T] each, row-major; a masked target is
    /// kMaskedTarget. A broken file is a DataError.
    void load(std::int64_t micro_batch, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const;

  private:
    SampleReader reader_;
    std::int64_t micro_batch_size_;
    std::int64_t samples_;
};

}  // namespace mfsdp::runtime
