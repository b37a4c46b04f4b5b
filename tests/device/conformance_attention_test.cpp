#include "mfsdp/device/memory.h"
#include "mfsdp/device/ops/attention.h"

#include "device/conformance.h"
#include "device/reference.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::device::conformance {

namespace {

using reference::HeadShape;
using reference::Size;
using reference::Vector;

struct Heads {
    std::int64_t batch, length, heads, key_heads, dimension;
    [[nodiscard]] std::string text() const {
        return sizes({{"B", batch}, {"T", length}, {"H", heads}, {"K", key_heads}, {"D", dimension}});
    }
    [[nodiscard]] HeadShape shape() const {
        return {static_cast<Size>(batch), static_cast<Size>(length), static_cast<Size>(heads),
                static_cast<Size>(key_heads), static_cast<Size>(dimension)};
    }
    [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(dimension)); }
    [[nodiscard]] Shape query() const { return {batch, length, heads, dimension}; }
    [[nodiscard]] Shape key() const { return {batch, length, key_heads, dimension}; }
    [[nodiscard]] Shape statistics() const { return {batch, heads, length}; }
};

void add_rotary_row(std::vector<Row>& rows, const Heads& size, bool inverse, DType type = DType::float32) {
    const std::int64_t positions = size.length + 2;
    // Angles far apart; cosine and sine of one another so that the rotation keeps lengths.
    const auto angle = [](std::int64_t index) { return 0.37 * static_cast<double>(index); };
    rows.push_back(row<Rotary>(
        size.text() + (inverse ? " inverse" : "") + suffix({type}),
        {in_out("x", size.query(), normal(), Gaps::allowed, type),
         input("cosine", {positions, size.dimension / 2},
               [angle](std::int64_t index, Random&) { return std::cos(angle(index)); }),
         input("sine", {positions, size.dimension / 2},
               [angle](std::int64_t index, Random&) { return std::sin(angle(index)); })},
        [inverse](Tensors t) {
            return Rotary{t[0], t[1], t[2], inverse};
        },
        [shape = size.shape(), inverse](Values& v) { v[0] = reference::rotary(v[0], v[1], v[2], shape, inverse); },
        Tolerance{.of_largest = 2e-7}));
}

void add_forward_row(std::vector<Row>& rows, const Heads& size, double deviation, DType type = DType::float32) {
    rows.push_back(row<AttentionForward>(
        size.text() + " deviation " + std::to_string(deviation) + suffix({type}),
        {input("query", size.query(), normal(deviation), Gaps::allowed, type),
         input("key", size.key(), normal(deviation), Gaps::allowed, type),
         input("value", size.key(), normal(), Gaps::allowed, type), output("out", size.query(), Gaps::allowed, type),
         output("log_sum_exp", size.statistics())},
        [size](Tensors t) { return AttentionForward{t[3], t[4], t[0], t[1], t[2], size.scale()}; },
        [size](Values& v) {
            const auto result = reference::attention(v[0], v[1], v[2], size.shape(), static_cast<double>(size.scale()));
            v[3] = result.out;
            v[4] = result.log_sum_exp;
        },
        // An error of a score is one of a weight in proportion to it: scores grow with the square of the deviation.
        Tolerance{.of_largest = 2e-6 * std::max(1.0, deviation * deviation)}));
    // Fused attention rounds weights to 16 bits before they meet the values.
    if (type != DType::float32) rows.back().gpu_tolerance = Tolerance{.of_largest = 8e-3};
}

/// The largest logit of each head is raised to, from values some of which are larger already.
void add_max_logits_row(std::vector<Row>& rows, const Heads& size, DType type = DType::float32) {
    rows.push_back(row<AttentionForward>(
        size.text() + " largest logits" + suffix({type}),
        {input("query", size.query(), normal(2.0), Gaps::allowed, type),
         input("key", size.key(), normal(2.0), Gaps::allowed, type),
         input("value", size.key(), normal(), Gaps::allowed, type), output("out", size.query(), Gaps::allowed, type),
         output("log_sum_exp", size.statistics()), in_out("max_logits", {size.heads}, list({-INFINITY, 1e3, -1.0}))},
        [size](Tensors t) { return AttentionForward{t[3], t[4], t[0], t[1], t[2], size.scale(), t[5]}; },
        [size](Values& v) {
            const HeadShape s = size.shape();
            const auto result = reference::attention(v[0], v[1], v[2], s, static_cast<double>(size.scale()));
            v[3] = result.out;
            v[4] = result.log_sum_exp;
            for (Size b = 0; b < s.batch; ++b) {
                for (Size h = 0; h < s.heads; ++h) {
                    for (Size i = 0; i < s.length; ++i) {
                        for (Size j = 0; j <= i; ++j) {
                            const Size q = s.query(b, i, h, 0), k = s.key(b, j, h / s.group(), 0);
                            double sum = 0.0;
                            for (Size c = 0; c < s.dimension; ++c) sum += v[0][q + c] * v[1][k + c];
                            v[5][h] = std::max(v[5][h], sum * static_cast<double>(size.scale()));
                        }
                    }
                }
            }
        },
        Tolerance{.of_value = 1e-5, .of_largest = 1e-5}));
}

/// Gradients with the weights of one head as a whole matrix: dV = P^T dO, dP = dO V^T, dS = P (dP - delta). delta is
/// rowsum(P dP), taken as rowsum(out dO) from the output as it is stored: its rounding is the operation's input.
struct Gradients {
    Vector query, key, value;
};
Gradients attention_gradients(const Vector& query, const Vector& key, const Vector& value, const Vector& grad_out,
                              const Vector& out, const HeadShape& s, double scale) {
    Gradients grad{Vector(query.size()), Vector(key.size()), Vector(value.size())};
    for (Size b = 0; b < s.batch; ++b) {
        for (Size h = 0; h < s.heads; ++h) {
            const Size shared = h / s.group();
            for (Size t = 0; t < s.length; ++t) {
                const auto row = reference::attention_row(query, key, s, scale, b, h, t);
                Vector grad_weights(t + 1, 0.0);
                double inner = 0.0;
                for (Size j = 0; j <= t; ++j) {
                    for (Size d = 0; d < s.dimension; ++d) {
                        const double g = grad_out[s.query(b, t, h, d)];
                        grad.value[s.key(b, j, shared, d)] += row.weights[j] * g;
                        grad_weights[j] += g * value[s.key(b, j, shared, d)];
                    }
                }
                for (Size d = 0; d < s.dimension; ++d)
                    inner += out[s.query(b, t, h, d)] * grad_out[s.query(b, t, h, d)];
                for (Size j = 0; j <= t; ++j) {
                    const double grad_score = scale * row.weights[j] * (grad_weights[j] - inner);
                    for (Size d = 0; d < s.dimension; ++d) {
                        grad.query[s.query(b, t, h, d)] += grad_score * key[s.key(b, j, shared, d)];
                        grad.key[s.key(b, j, shared, d)] += grad_score * query[s.query(b, t, h, d)];
                    }
                }
            }
        }
    }
    return grad;
}

/// Backward from the outputs of the operation's own forward, which the row launches first.
void add_backward_row(std::vector<Row>& rows, const Heads& size, DType type = DType::float32) {
    Row result = row<AttentionBackward>(
        size.text() + suffix({type}),
        {input("query", size.query(), normal(), Gaps::allowed, type),
         input("key", size.key(), normal(), Gaps::allowed, type),
         input("value", size.key(), normal(), Gaps::allowed, type),
         input("grad_out", size.query(), normal(), Gaps::allowed, type),
         output("out", size.query(), Gaps::allowed, type), output("log_sum_exp", size.statistics()),
         output("grad_query", size.query(), Gaps::allowed, type), output("grad_key", size.key(), Gaps::allowed, type),
         output("grad_value", size.key(), Gaps::allowed, type)},
        [size](Tensors t) {
            return AttentionBackward{t[6], t[7], t[8], {}, t[3], t[4], t[5], t[0], t[1], t[2], size.scale()};
        },
        [size, type](Values& v) {
            const auto scale = static_cast<double>(size.scale());
            const auto forward = reference::attention(v[0], v[1], v[2], size.shape(), scale);
            v[4] = forward.out;
            v[5] = forward.log_sum_exp;
            Vector stored = forward.out;
            for (double& value : stored) value = as_stored(value, type);
            const Gradients grad = attention_gradients(v[0], v[1], v[2], v[3], stored, size.shape(), scale);
            v[6] = grad.query;
            v[7] = grad.key;
            v[8] = grad.value;
        },
        // A value of the output near the middle between two neighbours may be stored as either: delta then differs.
        Tolerance{.of_largest = type == DType::float32 ? 4e-6 : 2e-3});
    result.launch = [size](Stream& stream, Tensors t) {
        // delta is scratch: not every backend fills it.
        MemoryLedger ledger;
        const Shape s = size.statistics();
        const Buffer delta(stream.device(), ledger, MemoryCategory::workspace, 4 * s[0] * s[1] * s[2]);
        launch(stream, AttentionForward{t[4], t[5], t[0], t[1], t[2], size.scale()});
        launch(stream, AttentionBackward{t[6], t[7], t[8], delta.view(DType::float32, {s[0], s[1], s[2]}), t[3], t[4],
                                         t[5], t[0], t[1], t[2], size.scale()});
        stream.synchronize();
    };
    if (type != DType::float32) result.gpu_tolerance = Tolerance{.of_largest = 1e-2};
    rows.push_back(std::move(result));
}

}  // namespace

std::vector<Row> attention_rows() {
    std::vector<Row> rows;
    for (const DType type : {DType::float32, DType::bfloat16}) {
        add_max_logits_row(rows, {2, 5, 3, 3, 8}, type);
        add_max_logits_row(rows, {1, 130, 4, 2, 16}, type);
    }
    for (const Heads& size :
         {Heads{1, 1, 1, 1, 2}, Heads{2, 5, 3, 3, 8}, Heads{1, 9, 2, 2, 6}, Heads{2, 3, 4, 4, 64}}) {
        for (const DType type : {DType::float32, DType::bfloat16}) {
            add_rotary_row(rows, size, false, type);
            add_rotary_row(rows, size, true, type);
        }
    }
    // One token, fewer than a tile, exactly one tile, one more, several with a rest; groups; odd head dimensions.
    for (const Heads& size : {Heads{1, 1, 1, 1, 1}, Heads{2, 3, 2, 1, 5}, Heads{1, 17, 4, 2, 8}, Heads{1, 64, 1, 1, 16},
                              Heads{1, 65, 2, 2, 24}, Heads{2, 130, 3, 1, 32}, Heads{1, 200, 2, 1, 64},
                              Heads{1, 70, 1, 1, 128}, Heads{1, 33, 2, 1, 160}}) {
        for (const DType type : {DType::float32, DType::bfloat16}) {
            add_forward_row(rows, size, 1.0, type);
            add_backward_row(rows, size, type);
        }
    }
    add_forward_row(rows, {1, 150, 2, 1, 8}, 30.0);  // scores in the thousands: no overflow
    std::vector<Row> none;
    add_rotary_row(none, {1, 0, 2, 2, 4}, false);
    add_forward_row(none, {2, 0, 2, 1, 4}, 1.0);
    add_backward_row(none, {2, 0, 2, 1, 4});
    for (Row& empty : none) rows.push_back(allow_empty(std::move(empty)));
    return rows;
}

}  // namespace mfsdp::device::conformance
