#include "device/cpu/attention_tiles.h"
#include "device/cpu/float8.h"
#include "device/cpu/kernels.h"
#include "device/cpu/scratch.h"
#include "device/cpu/tile_product.h"
#include "device/cpu/vector_math.h"

#include <algorithm>
#include <atomic>
#include <limits>

namespace mfsdp::device::cpu {

namespace {

/// Forward for kTile queries of one head. Scores are kept transposed, [key, query]: keys and values are then read as
/// they lie, and maximum, exponential and sum act on eight queries at once.
class ForwardTile {
  public:
    /// `query`, `key`, `value` and `out` are the rows of one head.
    ForwardTile(std::int64_t dimension, float scale)
        : dimension_(dimension), width_(round_up(dimension, kProductColumns)), scale_(scale) {
        ScratchCutter cutter(thread_scratch(2 * kTile * dimension + 2 * kTile * width_ + kTile * kTile + 8 * kTile));
        query_ = cutter.take(kTile * dimension);
        key_ = cutter.take(kTile * dimension);
        value_ = cutter.take(kTile * width_);
        out_ = cutter.take(kTile * width_);
        scores_ = cutter.take(kTile * kTile);
        maximum_ = cutter.take(kTile);
        sum_ = cutter.take(kTile);
        rescale_ = cutter.take(kTile);
    }

    template <class T>
    void start(HeadRows<const T> query, std::int64_t queries) {
        queries_ = queries;
        pack_transposed(query_, query, queries, dimension_, scale_);
        std::fill(out_, out_ + kTile * width_, 0.0F);
        std::fill(maximum_, maximum_ + kTile, -std::numeric_limits<float>::infinity());
        std::fill(sum_, sum_ + kTile, 0.0F);
    }

    template <class T>
    void add_keys(HeadRows<const T> key, HeadRows<const T> value, std::int64_t keys, bool diagonal) {
        const std::int64_t key_rows = round_up(keys, kProductRows);
        pack_key(key, keys, key_rows);
        pack_rows(value_, width_, value, keys, dimension_);
        multiply<false>(key_rows, round_up(queries_, kProductColumns), dimension_, {key_, dimension_, 1},
                        {query_, kTile}, {scores_, kTile});
        for (std::int64_t i = 0; i < queries_; i += kLanes) soften(i, key_rows, diagonal);
        for (std::int64_t i = 0; i < queries_; ++i) {
            if (rescale_[i] == 1.0F) continue;
            float* const row = out_ + i * width_;
            for (std::int64_t c = 0; c < width_; c += kLanes) store(row + c, load(row + c) * broadcast(rescale_[i]));
        }
        multiply<true>(round_up(queries_, kProductRows), width_, keys, {scores_, 1, kTile}, {value_, width_},
                       {out_, width_});
    }

    template <class T>
    void finish(HeadRows<T> out, float* log_sum_exp) const {
        for (std::int64_t i = 0; i < queries_; ++i) {
            const Float8 reciprocal = broadcast(1.0F / sum_[i]);
            const float* const row = out_ + i * width_;
            for_vectors(dimension_, [&](std::int64_t c, std::int64_t lanes) {
                store_lanes(out.data + i * out.stride + c, load(row + c) * reciprocal, lanes);
            });
            log_sum_exp[i] = static_cast<float>(static_cast<double>(maximum_[i]) + logarithm(sum_[i]));
        }
    }

    /// The largest score of all queries.
    [[nodiscard]] float largest_score() const { return *std::max_element(maximum_, maximum_ + queries_); }

  private:
    template <class T>
    void pack_key(HeadRows<const T> key, std::int64_t keys, std::int64_t key_rows) {
        for (std::int64_t row = 0; row < keys; ++row) {
            const T* const from = key.data + row * key.stride;
            for_vectors(dimension_, [=, to = key_ + row * dimension_](std::int64_t i, std::int64_t lanes) {
                store_lanes(to + i, load_lanes(from + i, lanes), lanes);
            });
        }
        std::fill(key_ + keys * dimension_, key_ + key_rows * dimension_, 0.0F);
    }

    /// Turns the scores of eight queries into exponentials below the new maximum, and updates maximum and sum.
    void soften(std::int64_t query, std::int64_t key_rows, bool diagonal) {
        float* const column = scores_ + query;
        const Float8 before = load(maximum_ + query);
        Float8 largest = before;
        for (std::int64_t j = 0; j < key_rows; ++j) {
            Float8 score = load(column + j * kTile);
            if (diagonal) {
                score = causal_mask(score, j, query);
                store(column + j * kTile, score);
            }
            largest = max(score, largest);
        }
        Float8 sum{};
        for (std::int64_t j = 0; j < key_rows; ++j) {
            const Float8 power = exponential(load(column + j * kTile) - largest);
            store(column + j * kTile, power);
            sum += power;
        }
        const Float8 rescale = exponential(before - largest);
        store(rescale_ + query, rescale);
        store(sum_ + query, fma(load(sum_ + query), rescale, sum));
        store(maximum_ + query, largest);
    }

    std::int64_t dimension_, width_;
    float scale_;
    std::int64_t queries_ = 0;
    float *query_, *key_, *value_, *out_, *scores_, *maximum_, *sum_, *rescale_;
};

/// A maximum has no order: whichever thread comes first, the value is the same.
void raise(float& target, float value) {
    const std::atomic_ref<float> shared(target);
    float before = shared.load(std::memory_order_relaxed);
    while (value > before && !shared.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
    }
}

template <class T>
void rotate_head(T* x, const float* cosine, const float* sine, std::int64_t half, bool inverse) {
    for_vectors(half, [=](std::int64_t i, std::int64_t lanes) {
        const Float8 c = load_lanes(cosine + i, lanes);
        const Float8 s = inverse ? -load_lanes(sine + i, lanes) : load_lanes(sine + i, lanes);
        const Float8 first = load_lanes(x + i, lanes);
        const Float8 second = load_lanes(x + half + i, lanes);
        store_lanes(x + i, fma(first, c, -(second * s)), lanes);
        store_lanes(x + half + i, fma(second, c, first * s), lanes);
    });
}

template <class T>
void rotary(const Context& context, const Rotary& operation) {
    const Tensor& x = operation.x;
    const std::int64_t length = x.shape[1];
    const std::int64_t half = x.shape[3] / 2;
    T* const data = context.data<T>(x);
    const float* const cosine = context.data<float>(operation.cosine);
    const float* const sine = context.data<float>(operation.sine);
    if (x.count() == 0) return;
    context.threads.parallel_for(x.shape[0] * length, [&](std::int64_t piece) {
        const std::int64_t t = piece % length;
        T* const token = data + piece / length * x.strides[0] + t * x.strides[1];
        for (std::int64_t head = 0; head < x.shape[2]; ++head) {
            rotate_head(token + head * x.strides[2], cosine + t * half, sine + t * half, half, operation.inverse);
        }
    });
}

template <class T>
void attention_forward(const Context& context, const AttentionForward& operation) {
    const std::int64_t length = operation.query.shape[1];
    const std::int64_t heads = operation.query.shape[2];
    const std::int64_t group = heads / operation.key.shape[2];
    const std::int64_t tiles = (length + kTile - 1) / kTile;
    float* const log_sum_exp = context.data<float>(operation.log_sum_exp);
    float* const max_logits = context.data<float>(operation.max_logits);
    context.threads.parallel_for(operation.query.shape[0] * heads * tiles, [&](std::int64_t piece) {
        // The last tiles see the most keys; they come first, so that no thread is left with one at the end.
        const std::int64_t begin = (tiles - 1 - piece % tiles) * kTile;
        const std::int64_t head = piece / tiles % heads;
        const std::int64_t batch = piece / tiles / heads;
        const std::int64_t end = std::min(length, begin + kTile);
        const auto key = head_rows<const T>(context, operation.key, batch, head / group);
        const auto value = head_rows<const T>(context, operation.value, batch, head / group);
        ForwardTile tile(operation.query.shape[3], operation.scale);
        tile.start(head_rows<const T>(context, operation.query, batch, head).from(begin), end - begin);
        for (std::int64_t j = 0; j < end; j += kTile) {
            tile.add_keys(key.from(j), value.from(j), std::min(end - j, kTile), j == begin);
        }
        tile.finish(head_rows<T>(context, operation.out, batch, head).from(begin),
                    log_sum_exp + (batch * heads + head) * length + begin);
        if (max_logits != nullptr) raise(max_logits[head], tile.largest_score());
    });
}

}  // namespace

void run(const Context& context, const Rotary& operation) {
    with_value_type(operation.x.dtype, [&](auto type) { rotary<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const AttentionForward& operation) {
    with_value_type(operation.query.dtype,
                    [&](auto type) { attention_forward<ElementOf<decltype(type)>>(context, operation); });
}

}  // namespace mfsdp::device::cpu
