#pragma once

#include "mfsdp/runtime/config/train_config.h"
#include "mfsdp/runtime/data/token_stream.h"

#include <cstdint>
#include <span>

namespace mfsdp::runtime {

inline constexpr std::int32_t kMaskedTarget = -100;  ///< a target that has no part in loss and gradient

/// Cuts a token stream into samples: sample i has inputs t[iT .. iT+T) and targets t[iT+1 .. iT+T+1).
/// Source: docs/determinism.md, batches.
class SampleReader {
  public:
    /// seq_len    T >= 1; a stream of fewer than T+1 tokens is a DataError
    /// alignment  whether t[p+1] counts if mask bit p is set (input) or bit p+1 (token)
    SampleReader(TokenStream stream, std::int64_t seq_len, MaskAlignment alignment);

    [[nodiscard]] const TokenStream& stream() const noexcept { return stream_; }
    [[nodiscard]] std::int64_t seq_len() const noexcept { return seq_len_; }
    /// S = floor((n-1)/T).
    [[nodiscard]] std::int64_t samples() const noexcept { return (stream_.tokens() - 1) / seq_len_; }
    /// Tokens at the end of the stream that no sample uses, as input or as target.
    [[nodiscard]] std::int64_t unused_tokens() const noexcept { return stream_.tokens() - 1 - samples() * seq_len_; }

    /// Reads one sample in [0, samples()). inputs, targets  [T] each, distinct; a masked target is kMaskedTarget.
    void read(std::int64_t sample, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const;

  private:
    TokenStream stream_;
    std::int64_t seq_len_;
    MaskAlignment alignment_;
};

}  // namespace mfsdp::runtime
