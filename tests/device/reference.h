#pragma once

// The forward operations as plain loops in double precision: what kernels are compared with, and what finite
// differences are taken of. Nothing here is shared with the kernels.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace mfsdp::device::reference {

using Vector = std::vector<double>;
using Size = std::size_t;

/// rows [n, C]; epsilon is added to the variance.
struct LayerNorm {
    Vector out, mean, reciprocal_std;
};
inline LayerNorm layer_norm(const Vector& x, const Vector& weight, const Vector& bias, Size rows, double epsilon) {
    const Size columns = weight.size();
    LayerNorm result{Vector(x.size()), Vector(rows), Vector(rows)};
    for (Size r = 0; r < rows; ++r) {
        double mean = 0.0, variance = 0.0;
        for (Size c = 0; c < columns; ++c) mean += x[r * columns + c] / static_cast<double>(columns);
        for (Size c = 0; c < columns; ++c) {
            variance += std::pow(x[r * columns + c] - mean, 2) / static_cast<double>(columns);
        }
        const double reciprocal = 1.0 / std::sqrt(variance + epsilon);
        for (Size c = 0; c < columns; ++c) {
            result.out[r * columns + c] = (x[r * columns + c] - mean) * reciprocal * weight[c] + bias[c];
        }
        result.mean[r] = mean;
        result.reciprocal_std[r] = reciprocal;
    }
    return result;
}

struct RmsNorm {
    Vector out, reciprocal_rms;
};
inline RmsNorm rms_norm(const Vector& x, const Vector& weight, Size rows, double epsilon) {
    const Size columns = weight.size();
    RmsNorm result{Vector(x.size()), Vector(rows)};
    for (Size r = 0; r < rows; ++r) {
        double square = 0.0;
        for (Size c = 0; c < columns; ++c) square += std::pow(x[r * columns + c], 2) / static_cast<double>(columns);
        result.reciprocal_rms[r] = 1.0 / std::sqrt(square + epsilon);
        for (Size c = 0; c < columns; ++c) {
            result.out[r * columns + c] = x[r * columns + c] * result.reciprocal_rms[r] * weight[c];
        }
    }
    return result;
}

inline double gelu(double x) {
    const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + std::tanh(inner));
}

inline double silu(double x) { return x / (1.0 + std::exp(-x)); }

struct HeadShape {
    Size batch, length, heads, key_heads, dimension;
    [[nodiscard]] Size group() const { return heads / key_heads; }
    [[nodiscard]] Size query(Size b, Size t, Size h, Size d) const {
        return ((b * length + t) * heads + h) * dimension + d;
    }
    [[nodiscard]] Size key(Size b, Size t, Size h, Size d) const {
        return ((b * length + t) * key_heads + h) * dimension + d;
    }
    [[nodiscard]] Size statistic(Size b, Size h, Size t) const { return (b * heads + h) * length + t; }
};

/// Rotates pairs (i, i + D/2) of x [B, T, H, D] by the angles whose cosine and sine [P, D/2] are given.
inline Vector rotary(const Vector& x, const Vector& cosine, const Vector& sine, const HeadShape& shape, bool inverse) {
    Vector out(x.size());
    const Size half = shape.dimension / 2;
    for (Size b = 0; b < shape.batch; ++b) {
        for (Size t = 0; t < shape.length; ++t) {
            for (Size h = 0; h < shape.heads; ++h) {
                for (Size i = 0; i < half; ++i) {
                    const double c = cosine[t * half + i];
                    const double s = inverse ? -sine[t * half + i] : sine[t * half + i];
                    const double first = x[shape.query(b, t, h, i)];
                    const double second = x[shape.query(b, t, h, i + half)];
                    out[shape.query(b, t, h, i)] = first * c - second * s;
                    out[shape.query(b, t, h, i + half)] = second * c + first * s;
                }
            }
        }
    }
    return out;
}

/// Weights of query t of head h over keys 0 .. t, and log of the sum of exponentials.
struct AttentionRow {
    Vector weights;
    double log_sum_exp = 0.0;
};
inline AttentionRow attention_row(const Vector& query, const Vector& key, const HeadShape& shape, double scale, Size b,
                                  Size h, Size t) {
    AttentionRow row;
    for (Size j = 0; j <= t; ++j) {
        double score = 0.0;
        for (Size d = 0; d < shape.dimension; ++d) {
            score += query[shape.query(b, t, h, d)] * key[shape.key(b, j, h / shape.group(), d)];
        }
        row.weights.push_back(scale * score);
    }
    const double largest = *std::max_element(row.weights.begin(), row.weights.end());
    double sum = 0.0;
    for (const double score : row.weights) sum += std::exp(score - largest);
    row.log_sum_exp = largest + std::log(sum);
    for (double& weight : row.weights) weight = std::exp(weight - row.log_sum_exp);
    return row;
}

struct Attention {
    Vector out, log_sum_exp;
};
inline Attention attention(const Vector& query, const Vector& key, const Vector& value, const HeadShape& shape,
                           double scale) {
    Attention result{Vector(query.size(), 0.0), Vector(shape.batch * shape.heads * shape.length)};
    for (Size b = 0; b < shape.batch; ++b) {
        for (Size h = 0; h < shape.heads; ++h) {
            for (Size t = 0; t < shape.length; ++t) {
                const AttentionRow row = attention_row(query, key, shape, scale, b, h, t);
                result.log_sum_exp[shape.statistic(b, h, t)] = row.log_sum_exp;
                for (Size j = 0; j <= t; ++j) {
                    for (Size d = 0; d < shape.dimension; ++d) {
                        result.out[shape.query(b, t, h, d)] +=
                            row.weights[j] * value[shape.key(b, j, h / shape.group(), d)];
                    }
                }
            }
        }
    }
    return result;
}

/// Loss of each token over the whole vocabulary; 0 for a target below 0.
inline Vector cross_entropy(const Vector& logits, const Vector& targets) {
    const Size tokens = targets.size();
    const Size vocabulary = tokens == 0 ? 0 : logits.size() / tokens;
    Vector losses(tokens, 0.0);
    for (Size i = 0; i < tokens; ++i) {
        if (targets[i] < 0.0) continue;
        const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i * vocabulary);
        const double largest = *std::max_element(row, row + static_cast<std::ptrdiff_t>(vocabulary));
        double sum = 0.0;
        for (Size v = 0; v < vocabulary; ++v) sum += std::exp(logits[i * vocabulary + v] - largest);
        losses[i] = largest + std::log(sum) - logits[i * vocabulary + static_cast<Size>(targets[i])];
    }
    return losses;
}

}  // namespace mfsdp::device::reference
