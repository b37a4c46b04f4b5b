#pragma once

#include "mfsdp/runtime/data/sample_reader.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mfsdp::runtime {

/// What decides the sequence of batches. Nothing in it knows of ranks.
struct DataOptions {
    std::vector<std::string> patterns;
    DataFormat format = DataFormat::tokens;
    MaskAlignment mask_alignment = MaskAlignment::input;
    std::int64_t vocab_size = 0;
    std::int64_t seq_len = 0;            ///< T
    std::int64_t micro_batch_size = 1;   ///< B, samples
    std::int64_t global_batch_size = 1;  ///< G, samples per step; a multiple of B
    bool shuffle = true;
    std::uint64_t seed = 1234;
};

/// The training batches: a pure function of (tokens, T, G, B, shuffle, seed), the same on every rank and for every
/// number of ranks. Several threads may load at once. Source: docs/determinism.md, batches.
class BatchLoader {
  public:
    explicit BatchLoader(const DataOptions& options);

    /// Micro-batches of one step: G / B.
    [[nodiscard]] std::int64_t micro_batches() const noexcept { return global_batch_size_ / micro_batch_size_; }
    [[nodiscard]] std::int64_t samples_per_epoch() const noexcept { return reader_.samples(); }
    /// Tokens at the end of the stream that no epoch uses.
    [[nodiscard]] std::int64_t unused_tokens() const noexcept { return reader_.unused_tokens(); }
    [[nodiscard]] const TokenStream& stream() const noexcept { return reader_.stream(); }

    /// Epochs begun and completed after `next_sample` global samples, fractional.
    [[nodiscard]] double epoch(std::int64_t next_sample) const;
    /// Sample that global sample g >= 0 stands for.
    [[nodiscard]] std::int64_t sample(std::int64_t global_sample) const;

    /// Loads micro-batch `micro_batch` in [0, micro_batches()) of the step that starts at global sample `next_sample`.
    ///
    /// inputs, targets  [B, T] each, row-major; a masked target is kMaskedTarget
    /// A broken file is a DataError.
    void load(std::int64_t next_sample, std::int64_t micro_batch, std::span<std::int32_t> inputs,
              std::span<std::int32_t> targets) const;

    /// Reports a global batch, starting at `next_sample`, of which no target counts: its mean loss does not exist.
    [[noreturn]] void raise_all_masked(std::int64_t next_sample) const;

  private:
    SampleReader reader_;
    std::int64_t micro_batch_size_;
    std::int64_t global_batch_size_;
    bool shuffle_;
    std::uint64_t seed_;
};

}  // namespace mfsdp::runtime
