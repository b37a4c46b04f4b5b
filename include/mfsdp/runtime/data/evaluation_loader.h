#pragma once

#include "mfsdp/runtime/data/batch_loader.h"
#include "mfsdp/runtime/data/sample_reader.h"

#include <cstdint>
#include <span>

namespace mfsdp::runtime {

/// The validation batches: samples 0..E-1 in order, in micro-batches of B, the last filled with empty samples, so that
/// a sample's place in its batch does not depend on the number of ranks. Source: formats.md section 1.2.
class EvaluationLoader {
  public:
    /// options  of `data.valid`; shuffle, seed and global_batch_size are not used
    /// samples  E; 0 takes all; more than the files hold is a ConfigError
    EvaluationLoader(const DataOptions& options, std::int64_t samples);

    /// E.
    [[nodiscard]] std::int64_t samples() const noexcept { return samples_; }
    /// ceil(E / B).
    [[nodiscard]] std::int64_t micro_batches() const noexcept {
        return (samples_ + micro_batch_size_ - 1) / micro_batch_size_;
    }
    [[nodiscard]] const TokenStream& stream() const noexcept { return reader_.stream(); }

    /// Loads one micro-batch; inputs, targets  [B, T] each, a masked target is kMaskedTarget.
    void load(std::int64_t micro_batch, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const;

  private:
    SampleReader reader_;
    std::int64_t micro_batch_size_;
    std::int64_t samples_;
};

}  // namespace mfsdp::runtime
