#include "device/cpu/attention_tiles.h"
#include "device/cpu/float8.h"
#include "device/cpu/kernels.h"
#include "device/cpu/scratch.h"
#include "device/cpu/tile_product.h"
#include "device/cpu/vector_math.h"

#include <algorithm>
#include <type_traits>

namespace mfsdp::device::cpu {

namespace {

/// target rows (+)= tile rows: the first contribution is copied, later ones are added in the order of the calls.
void add_tile(HeadRows<float> target, const float* tile, std::int64_t width, std::int64_t rows, std::int64_t columns,
              bool first) {
    for (std::int64_t row = 0; row < rows; ++row) {
        float* const to = target.data + row * target.stride;
        const float* const from = tile + row * width;
        for_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
            store_lanes(to + i, first ? load(from + i) : load_lanes(to + i, lanes) + load(from + i), lanes);
        });
    }
}

/// Backward for kTile queries of one head against one tile of keys after another. As in the forward, scores and their
/// gradients are kept transposed, [key, query].
class BackwardTile {
  public:
    BackwardTile(std::int64_t dimension, float scale)
        : dimension_(dimension), width_(round_up(dimension, kProductColumns)), scale_(scale) {
        ScratchCutter cutter(
            thread_scratch(2 * kTile * dimension + 6 * kTile * width_ + 2 * kTile * kTile + 2 * kTile));
        query_transposed_ = cutter.take(kTile * dimension);
        grad_out_transposed_ = cutter.take(kTile * dimension);
        query_ = cutter.take(kTile * width_);
        grad_out_ = cutter.take(kTile * width_);
        key_ = cutter.take(kTile * width_);
        value_ = cutter.take(kTile * width_);
        grad_query_ = cutter.take(kTile * width_);
        sum_ = cutter.take(kTile * width_);
        weights_ = cutter.take(kTile * kTile);
        grad_scores_ = cutter.take(kTile * kTile);
        log_sum_exp_ = cutter.take(kTile);
        delta_ = cutter.take(kTile);
    }

    template <class T>
    void start(HeadRows<const T> query, HeadRows<const T> grad_out, const float* log_sum_exp, const float* delta,
               std::int64_t queries) {
        queries_ = queries;
        pack_transposed(query_transposed_, query, queries, dimension_, scale_);
        pack_rows(query_, width_, query, queries, dimension_, scale_);
        pack_transposed(grad_out_transposed_, grad_out, queries, dimension_);
        pack_rows(grad_out_, width_, grad_out, queries, dimension_);
        std::copy_n(log_sum_exp, queries, log_sum_exp_);
        std::copy_n(delta, queries, delta_);
        std::fill(log_sum_exp_ + queries, log_sum_exp_ + kTile, 0.0F);
        std::fill(delta_ + queries, delta_ + kTile, 0.0F);
        std::fill(grad_query_, grad_query_ + kTile * width_, 0.0F);
    }

    /// Adds what these queries give to the gradients of `keys` keys and values; `first` overwrites.
    template <class T>
    void add_keys(HeadRows<const T> key, HeadRows<const T> value, HeadRows<float> grad_key, HeadRows<float> grad_value,
                  std::int64_t keys, bool diagonal, bool first) {
        const std::int64_t key_rows = round_up(keys, kProductRows);
        const std::int64_t query_columns = round_up(queries_, kProductColumns);
        pack_rows(key_, width_, key, keys, dimension_);
        pack_rows(value_, width_, value, keys, dimension_);
        multiply<false>(key_rows, query_columns, dimension_, {key_, width_, 1}, {query_transposed_, kTile},
                        {weights_, kTile});
        multiply<false>(key_rows, query_columns, dimension_, {value_, width_, 1}, {grad_out_transposed_, kTile},
                        {grad_scores_, kTile});
        for (std::int64_t j = 0; j < key_rows; ++j) differentiate(j, diagonal);
        multiply<false>(key_rows, width_, queries_, {weights_, kTile, 1}, {grad_out_, width_}, {sum_, width_});
        add_tile(grad_value, sum_, width_, keys, dimension_, first);
        multiply<false>(key_rows, width_, queries_, {grad_scores_, kTile, 1}, {query_, width_}, {sum_, width_});
        add_tile(grad_key, sum_, width_, keys, dimension_, first);
        multiply<true>(round_up(queries_, kProductRows), width_, keys, {grad_scores_, 1, kTile}, {key_, width_},
                       {grad_query_, width_});
    }

    template <class T>
    void finish(HeadRows<T> grad_query) const {
        for (std::int64_t i = 0; i < queries_; ++i) {
            const float* const row = grad_query_ + i * width_;
            for_vectors(dimension_, [&](std::int64_t c, std::int64_t lanes) {
                store_lanes(grad_query.data + i * grad_query.stride + c, load(row + c) * broadcast(scale_), lanes);
            });
        }
    }

  private:
    /// Row `key` of the attention matrix from its scores, and the gradient of those: p = e^(s - log_sum_exp),
    /// ds = p (dp - delta).
    void differentiate(std::int64_t key, bool diagonal) {
        float* const weights = weights_ + key * kTile;
        float* const grad_scores = grad_scores_ + key * kTile;
        for (std::int64_t i = 0; i < queries_; i += kLanes) {
            Float8 score = load(weights + i);
            if (diagonal) score = causal_mask(score, key, i);
            const Float8 weight = exponential(score - load(log_sum_exp_ + i));
            store(weights + i, weight);
            store(grad_scores + i, weight * (load(grad_scores + i) - load(delta_ + i)));
        }
    }

    std::int64_t dimension_, width_;
    float scale_;
    std::int64_t queries_ = 0;
    float *query_transposed_, *grad_out_transposed_, *query_, *grad_out_, *key_, *value_, *grad_query_, *sum_;
    float *weights_, *grad_scores_, *log_sum_exp_, *delta_;
};

/// delta[t] = grad_out[t] . out[t], which is what the gradient of the softmax subtracts.
template <class T>
void compute_delta(float* delta, HeadRows<const T> grad_out, HeadRows<const T> out, std::int64_t length,
                   std::int64_t dimension) {
    for (std::int64_t t = 0; t < length; ++t) {
        const T* const left = grad_out.data + t * grad_out.stride;
        const T* const right = out.data + t * out.stride;
        delta[t] = sum_vectors(dimension, [=](std::int64_t i, std::int64_t lanes) {
            return load_lanes(left + i, lanes) * load_lanes(right + i, lanes);
        });
    }
}

/// Where the gradients of a key head are summed over its queries: in place if they are float32, else in scratch of the
/// thread that is rounded once at the end.
template <class T>
class KeyGradient {
  public:
    KeyGradient(HeadRows<T> target, float* scratch, std::int64_t length, std::int64_t dimension)
        : target_(target), scratch_{scratch, dimension}, length_(length), dimension_(dimension) {}

    [[nodiscard]] HeadRows<float> sum() const {
        if constexpr (std::is_same_v<T, float>) {
            return target_;
        } else {
            return scratch_;
        }
    }
    void finish() const {
        if constexpr (!std::is_same_v<T, float>) {
            for (std::int64_t t = 0; t < length_; ++t) {
                for_vectors(dimension_, [&](std::int64_t i, std::int64_t lanes) {
                    store_lanes(target_.data + t * target_.stride + i,
                                load_lanes(scratch_.data + t * dimension_ + i, lanes), lanes);
                });
            }
        }
    }

  private:
    HeadRows<T> target_;
    HeadRows<float> scratch_;
    std::int64_t length_, dimension_;
};

/// Floats of scratch for the gradients of a key head's keys and values.
template <class T>
float* key_gradient_scratch(std::int64_t length, std::int64_t dimension) {
    return std::is_same_v<T, float> ? nullptr : thread_scratch<float, KeyGradient<T>>(2 * length * dimension);
}

/// All that one key head of one sequence has to do with its queries, so that its gradients are added by one thread, in
/// the order of query heads and query tiles.
template <class T>
void run_key_head(const Context& context, const AttentionBackward& operation, std::int64_t batch,
                  std::int64_t key_head) {
    const std::int64_t length = operation.query.shape[1];
    const std::int64_t heads = operation.query.shape[2];
    const std::int64_t dimension = operation.query.shape[3];
    const std::int64_t group = heads / operation.key.shape[2];
    const auto key = head_rows<const T>(context, operation.key, batch, key_head);
    const auto value = head_rows<const T>(context, operation.value, batch, key_head);
    float* const scratch = key_gradient_scratch<T>(length, dimension);
    const KeyGradient<T> grad_key(head_rows<T>(context, operation.grad_key, batch, key_head), scratch, length,
                                  dimension);
    const KeyGradient<T> grad_value(head_rows<T>(context, operation.grad_value, batch, key_head),
                                    scratch + (scratch == nullptr ? 0 : length * dimension), length, dimension);
    BackwardTile tile(dimension, operation.scale);
    for (std::int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
        const std::int64_t statistics = (batch * heads + head) * length;
        float* const delta = context.data<float>(operation.delta) + statistics;
        const float* const log_sum_exp = context.data<const float>(operation.log_sum_exp) + statistics;
        const auto query = head_rows<const T>(context, operation.query, batch, head);
        const auto grad_out = head_rows<const T>(context, operation.grad_out, batch, head);
        const auto grad_query = head_rows<T>(context, operation.grad_query, batch, head);
        compute_delta(delta, grad_out, head_rows<const T>(context, operation.out, batch, head), length, dimension);
        for (std::int64_t i = 0; i < length; i += kTile) {
            const std::int64_t end = std::min(length, i + kTile);
            tile.start(query.from(i), grad_out.from(i), log_sum_exp + i, delta + i, end - i);
            for (std::int64_t j = 0; j < end; j += kTile) {
                // Keys of tile j are first seen by the queries of the same tile in the first head of the group.
                const bool first = head == key_head * group && i == j;
                tile.add_keys(key.from(j), value.from(j), grad_key.sum().from(j), grad_value.sum().from(j),
                              std::min(end - j, kTile), i == j, first);
            }
            tile.finish(grad_query.from(i));
        }
    }
    grad_key.finish();
    grad_value.finish();
}

}  // namespace

void run(const Context& context, const AttentionBackward& operation) {
    const std::int64_t key_heads = operation.key.shape[2];
    if (operation.query.count() == 0) return;
    with_value_type(operation.query.dtype, [&](auto type) {
        context.threads.parallel_for(operation.query.shape[0] * key_heads, [&](std::int64_t piece) {
            run_key_head<ElementOf<decltype(type)>>(context, operation, piece / key_heads, piece % key_heads);
        });
    });
}

}  // namespace mfsdp::device::cpu
