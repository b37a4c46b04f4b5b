#pragma once

#include "mfsdp/device/operation.h"
#include "mfsdp/device/tensor.h"

#include <string_view>

namespace mfsdp::device {

/// Rotates pair (i, i + D/2) of every head by p * theta^(-2i/D) at position p: out1 = x1 cos - x2 sin,
/// out2 = x2 cos + x1 sin; `inverse` turns back (that is the backward).
///
/// x [B, T, H, D] float32 or bfloat16, strided with contiguous D, changed in place; cosine, sine [P, D/2] float32,
/// P >= T.
struct Rotary {
    static constexpr std::string_view kName = "rotary";
    Tensor x, cosine, sine;
    bool inverse = false;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// Causal attention with grouped queries, tiled with a running maximum: no T x T matrix in memory.
///
/// out, query [B, T, H, D]; key, value [B, T, K, D], K divides H; query head h reads key head h / (H / K).
/// log_sum_exp [B, H, T] dense float32 (output, saved for backward). The others of one type, float32 or bfloat16, all
/// strided with contiguous D; arithmetic is float32, out is rounded once.
/// out = softmax(scale * query key^T + causal mask) value. Source: FlashAttention-2 (Dao 2023), restated.
/// max_logits [H] float32 dense, undefined where it is not wanted: raised to the largest scale * query . key of the
/// head under the mask, where that is larger.
struct AttentionForward {
    static constexpr std::string_view kName = "attention_forward";
    Tensor out, log_sum_exp, query, key, value;
    float scale = 1.0F;
    Tensor max_logits{};
    void check() const;
    [[nodiscard]] Cost cost() const;
};

/// Gradients of AttentionForward; all three are written, of one type with the other values, each sum rounded once.
/// delta [B, H, T] float32 is scratch. No aliasing.
struct AttentionBackward {
    static constexpr std::string_view kName = "attention_backward";
    Tensor grad_query, grad_key, grad_value, delta, grad_out, out, log_sum_exp, query, key, value;
    float scale = 1.0F;
    void check() const;
    [[nodiscard]] Cost cost() const;
};

}  // namespace mfsdp::device
