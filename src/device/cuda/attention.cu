#include "mfsdp/device/ops/attention.h"

#include "device/cuda/element.h"
#include "device/cuda/fused_attention.h"
#include "device/cuda/kernels.h"
#include "device/cuda/launch.h"
#include "device/cuda/reduce.h"
#include "device/cuda/scratch.h"

#include <initializer_list>
#include <limits>
#include <string>

// Attention by tiles, in float32, without a T x T matrix in memory: the reference of every shape, and what runs where
// the library has no kernel. FlashAttention-2 (Dao 2023), restated.
//
// A block has a tile of rows, kTile of them, and goes over the tiles of what meets these rows under the mask:
//
//   kernel        rows of a block   goes over       sums in registers
//   forward       queries           keys            out
//   grad_query    queries           keys            grad_query
//   grad_key      keys              queries         grad_key, grad_value
//
// so that every sum belongs to one thread, which adds tile by tile in a fixed order: no atomics, the same bits on every
// run. The price is that scores are computed twice in the backward. Gradients of a key head sum over the query heads
// that share it, in their order.
//
// Threads form a square of 16 x 16. For scores, thread (x, y) has rows y * kSide ... and columns x, x + 16, ...: its
// scores stay in registers for the softmax, whose row sums are then shuffles among the 16 threads of a row. For
// products with a tile it has the same rows and the dimensions 4 x ... 4 x + 3, + 64, ...
//
// Tiles lie in shared memory as float32, head dimensions padded with zeros to kDimension, rows kept apart by kDimension
// + 4 floats so that 16 rows read at once come from different banks.

namespace mfsdp::device::cuda {

namespace {

constexpr int kSquare = 16;
constexpr int kThreads = kSquare * kSquare;
constexpr int kVector = 4;  ///< floats that a thread reads from shared memory at once
constexpr unsigned kWholeWarp = 0xFFFFFFFFU;

/// One of the tensors [B, T, heads, D].
template <class T>
struct Heads {
    T* data;
    std::int64_t batch_stride, row_stride, head_stride;

    [[nodiscard]] __device__ T* row(std::int64_t batch, std::int64_t row, std::int64_t head) const {
        return data + batch * batch_stride + row * row_stride + head * head_stride;
    }
};

template <class T>
[[nodiscard]] Heads<T> heads_of(const Tensor& tensor) {
    return {data<T>(tensor), tensor.strides[0], tensor.strides[1], tensor.strides[2]};
}

struct Sizes {
    std::int64_t length, heads, key_heads, dimension;
    std::int64_t tiles;  ///< of rows, in a head
    float scale;
    bool aligned;  ///< every row of every tensor begins on 16 bytes
};

/// What a block has: a tile of rows of one head.
struct Place {
    std::int64_t first_row, head, batch;
};

[[nodiscard]] __device__ inline Place place_of_block(std::int64_t tile, std::int64_t tile_rows, std::int64_t tiles,
                                                     std::int64_t heads) {
    const std::int64_t slice = blockIdx.x / tiles;
    const std::int64_t batch = slice / heads;
    return {tile * tile_rows, slice - batch * heads, batch};
}

/// kRows rows of kColumns floats in shared memory.
template <int kRows, int kColumns>
struct Tile {
    static constexpr int kStride = kColumns + kVector;
    static constexpr int kFloats = kRows * kStride;
    float* data;

    [[nodiscard]] __device__ float* row(int row) const { return data + row * kStride; }
};

/// Cuts shared memory into tiles.
struct TileCutter {
    float* next;
    template <class T>
    [[nodiscard]] __device__ T take() {
        const T tile{next};
        next += T::kFloats;
        return tile;
    }
};

/// What follows from the size of a tile and the (padded) head dimension.
template <int kTile, int kDimension>
struct Layout {
    static constexpr int kSide = kTile / kSquare;             ///< rows, and columns of scores, of a thread
    static constexpr int kDimensions = kDimension / kSquare;  ///< head dimensions of a thread
    static constexpr int kChunk = kDimensions < kVector ? kDimensions : kVector;
    static constexpr int kChunks = kDimensions / kChunk;
    using Rows = Tile<kTile, kDimension>;
    using Scores = Tile<kTile, kTile>;
    static constexpr std::size_t bytes(int row_tiles) {
        return sizeof(float) * static_cast<std::size_t>(row_tiles * Rows::kFloats + Scores::kFloats);
    }
};

/// Sums of a thread: its rows times its head dimensions.
template <class L>
struct Sums {
    float value[L::kSide][L::kDimensions] = {};
};

/// Loads rows [first, first + kTile) of a head; zeros where there are none.
template <int kTile, int kDimension, class T>
__device__ void load_tile(const Tile<kTile, kDimension>& tile, const Heads<const T>& tensor, std::int64_t batch,
                          std::int64_t first, std::int64_t head, const Sizes& sizes) {
    constexpr int kLanes = 16 / static_cast<int>(sizeof(T));
    constexpr int kVectorsInRow = kDimension / kLanes;
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kVectorsInRow; i += kThreads) {
        const int row = i / kVectorsInRow, column = i % kVectorsInRow * kLanes;
        Floats<kLanes> values{};
        if (first + row < sizes.length && column < sizes.dimension) {
            const T* const source = tensor.row(batch, first + row, head) + column;
            if (sizes.aligned && column + kLanes <= sizes.dimension) {
                values = load<kLanes>(source);
            } else {
                MFSDP_UNROLL
                for (int lane = 0; lane < kLanes; ++lane) {
                    if (column + lane < sizes.dimension) values.lane[lane] = widened(source[lane]);
                }
            }
        }
        MFSDP_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) tile.row(row)[column + lane] = values.lane[lane];
    }
}

/// Words at an address that is a multiple of their size.
[[nodiscard]] __device__ inline Floats<kVector> read_vector(const float* address) { return load<kVector>(address); }

/// scores[i][j] = row y * kSide + i of `rows` times row x + 16 j of `columns`.
template <class L>
__device__ void multiply_rows(float (&scores)[L::kSide][L::kSide], const typename L::Rows& rows,
                              const typename L::Rows& columns, int x, int y) {
    MFSDP_UNROLL
    for (int i = 0; i < L::kSide; ++i) {
        MFSDP_UNROLL
        for (int j = 0; j < L::kSide; ++j) scores[i][j] = 0.0F;
    }
    MFSDP_UNROLL_BY(2)
    for (int d = 0; d < L::Rows::kStride - kVector; d += kVector) {
        Floats<kVector> left[L::kSide], right[L::kSide];
        MFSDP_UNROLL
        for (int i = 0; i < L::kSide; ++i) left[i] = read_vector(rows.row(y * L::kSide + i) + d);
        MFSDP_UNROLL
        for (int j = 0; j < L::kSide; ++j) right[j] = read_vector(columns.row(x + kSquare * j) + d);
        MFSDP_UNROLL
        for (int i = 0; i < L::kSide; ++i) {
            MFSDP_UNROLL
            for (int j = 0; j < L::kSide; ++j) {
                MFSDP_UNROLL
                for (int lane = 0; lane < kVector; ++lane) {
                    scores[i][j] = fmaf(left[i].lane[lane], right[j].lane[lane], scores[i][j]);
                }
            }
        }
    }
}

/// The thread's scores into the tile, whose rows other threads of its row will read.
template <class L>
__device__ void write_scores(const typename L::Scores& tile, const float (&scores)[L::kSide][L::kSide], int x, int y) {
    MFSDP_UNROLL
    for (int i = 0; i < L::kSide; ++i) {
        MFSDP_UNROLL
        for (int j = 0; j < L::kSide; ++j) tile.row(y * L::kSide + i)[x + kSquare * j] = scores[i][j];
    }
}

/// sums += the thread's rows of `weights` times its head dimensions of `rows`.
template <class L>
__device__ void add_weighted_rows(Sums<L>& sums, const typename L::Scores& weights, const typename L::Rows& rows, int x,
                                  int y) {
    MFSDP_UNROLL_BY(1)
    for (int j = 0; j < L::Scores::kStride - kVector; j += kVector) {
        Floats<kVector> weight[L::kSide];
        MFSDP_UNROLL
        for (int i = 0; i < L::kSide; ++i) weight[i] = read_vector(weights.row(y * L::kSide + i) + j);
        MFSDP_UNROLL
        for (int lane = 0; lane < kVector; ++lane) {
            MFSDP_UNROLL
            for (int c = 0; c < L::kChunks; ++c) {
                const auto values = load<L::kChunk>(rows.row(j + lane) + (c * kSquare + x) * L::kChunk);
                MFSDP_UNROLL
                for (int i = 0; i < L::kSide; ++i) {
                    MFSDP_UNROLL
                    for (int d = 0; d < L::kChunk; ++d) {
                        float& sum = sums.value[i][c * L::kChunk + d];
                        sum = fmaf(weight[i].lane[lane], values.lane[d], sum);
                    }
                }
            }
        }
    }
}

/// Stores sums * factor[i] to the thread's rows of a head, as far as they exist.
template <class L, class T>
__device__ void store_sums(const Heads<T>& tensor, const Place& place, const Sums<L>& sums,
                           const float (&factor)[L::kSide], const Sizes& sizes, int x, int y) {
    MFSDP_UNROLL
    for (int i = 0; i < L::kSide; ++i) {
        const std::int64_t row = place.first_row + y * L::kSide + i;
        if (row >= sizes.length) continue;
        T* const target = tensor.row(place.batch, row, place.head);
        MFSDP_UNROLL
        for (int c = 0; c < L::kChunks; ++c) {
            const int column = (c * kSquare + x) * L::kChunk;
            Floats<L::kChunk> values;
            MFSDP_UNROLL
            for (int d = 0; d < L::kChunk; ++d) values.lane[d] = sums.value[i][c * L::kChunk + d] * factor[i];
            if (sizes.aligned && column + L::kChunk <= sizes.dimension) {
                store(target + column, values);
            } else {
                MFSDP_UNROLL
                for (int d = 0; d < L::kChunk; ++d) {
                    if (column + d < sizes.dimension) target[column + d] = rounded<T>(values.lane[d]);
                }
            }
        }
    }
}

/// Combines a value over the 16 threads that have the same rows; all of them get the result.
template <class Combine>
[[nodiscard]] __device__ float over_row(float value, const Combine& combine) {
    MFSDP_UNROLL
    for (int distance = kSquare / 2; distance > 0; distance /= 2) {
        value = combine(value, __shfl_xor_sync(kWholeWarp, value, distance));
    }
    return value;
}

template <int kTile, int kDimension, class T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Heads<T> out, float* log_sum_exp, float* row_maxima, Heads<const T> query, Heads<const T> key,
                   Heads<const T> value, Sizes sizes) {
    using L = Layout<kTile, kDimension>;
    MFSDP_DYNAMIC_SHARED(float, shared);
    TileCutter cutter{shared};
    const auto queries = cutter.take<typename L::Rows>();
    const auto others = cutter.take<typename L::Rows>();  // keys, then values
    const auto weights = cutter.take<typename L::Scores>();
    const int x = static_cast<int>(threadIdx.x) % kSquare, y = static_cast<int>(threadIdx.x) / kSquare;
    // The last tile has most keys: it starts first.
    const std::int64_t tile = sizes.tiles - 1 - blockIdx.x % sizes.tiles;
    const Place place = place_of_block(tile, kTile, sizes.tiles, sizes.heads);
    const std::int64_t key_head = place.head / (sizes.heads / sizes.key_heads);

    load_tile(queries, query, place.batch, place.first_row, place.head, sizes);
    Sums<L> sums;
    float maximum[L::kSide], total[L::kSide];
    MFSDP_UNROLL
    for (int i = 0; i < L::kSide; ++i) {
        maximum[i] = -std::numeric_limits<float>::infinity();
        total[i] = 0.0F;  // of this thread's columns
    }
    for (std::int64_t first_key = 0; first_key <= place.first_row; first_key += kTile) {
        __syncthreads();  // the last tile's values have been read
        load_tile(others, key, place.batch, first_key, key_head, sizes);
        __syncthreads();
        float scores[L::kSide][L::kSide];
        multiply_rows<L>(scores, queries, others, x, y);
        MFSDP_UNROLL
        for (int i = 0; i < L::kSide; ++i) {
            const std::int64_t row = place.first_row + y * L::kSide + i;
            float largest = maximum[i];
            MFSDP_UNROLL
            for (int j = 0; j < L::kSide; ++j) {
                const std::int64_t column = first_key + x + kSquare * j;
                const bool seen = column <= row;  // of a row that exists, column exists too
                scores[i][j] = seen ? scores[i][j] * sizes.scale : -std::numeric_limits<float>::infinity();
                largest = fmaxf(largest, scores[i][j]);
            }
            // Every row sees key 0, in the first tile: from then on this is a number.
            largest = over_row(largest, [](float a, float b) { return fmaxf(a, b); });
            const float shrink = expf(maximum[i] - largest);
            maximum[i] = largest;
            total[i] *= shrink;
            MFSDP_UNROLL
            for (int j = 0; j < L::kSide; ++j) {
                scores[i][j] = expf(scores[i][j] - largest);
                total[i] += scores[i][j];
            }
            MFSDP_UNROLL
            for (int d = 0; d < L::kDimensions; ++d) sums.value[i][d] *= shrink;
        }
        write_scores<L>(weights, scores, x, y);
        __syncthreads();  // the keys have been read, the weights are there
        load_tile(others, value, place.batch, first_key, key_head, sizes);
        __syncthreads();
        add_weighted_rows(sums, weights, others, x, y);
    }
    float factor[L::kSide];
    MFSDP_UNROLL
    for (int i = 0; i < L::kSide; ++i) {
        total[i] = over_row(total[i], [](float a, float b) { return a + b; });
        factor[i] = 1.0F / total[i];
        const std::int64_t row = place.first_row + y * L::kSide + i;
        if (x == 0 && row < sizes.length) {
            const std::int64_t index = (place.batch * sizes.heads + place.head) * sizes.length + row;
            log_sum_exp[index] = maximum[i] + logf(total[i]);
            if (row_maxima != nullptr) row_maxima[index] = maximum[i];
        }
    }
    store_sums(out, place, sums, factor, sizes, x, y);
}

/// max_logits[h] is raised to the largest of row_maxima [batch, heads, length]; one block for each head.
__global__ void __launch_bounds__(kThreads)
    raise_kernel(float* max_logits, const float* row_maxima, std::int64_t batch, std::int64_t length) {
    const std::int64_t head = blockIdx.x, heads = gridDim.x;
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = threadIdx.x; i < batch * length; i += kThreads) {
        const std::int64_t slice = i / length;
        largest = fmaxf(largest, row_maxima[(slice * heads + head) * length + i - slice * length]);
    }
    largest = largest_of_row(largest);
    if (threadIdx.x == 0) max_logits[head] = fmaxf(max_logits[head], largest);
}

/// delta [b, h, t] = sum over d of out * grad_out; one warp for each.
template <class T>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(float* delta, Heads<const T> out, Heads<const T> grad_out, std::int64_t count, Sizes sizes) {
    const std::int64_t index = global_index() / kWarpSize;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    if (index >= count) return;
    const std::int64_t slice = index / sizes.length, row = index - slice * sizes.length;
    const std::int64_t batch = slice / sizes.heads, head = slice - batch * sizes.heads;
    const T* const left = out.row(batch, row, head);
    const T* const right = grad_out.row(batch, row, head);
    float sum = 0.0F;
    for (std::int64_t d = lane; d < sizes.dimension; d += kWarpSize)
        sum = fmaf(widened(left[d]), widened(right[d]), sum);
    MFSDP_UNROLL
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, distance);
    if (lane == 0) delta[index] = sum;
}

/// What the backward kernels read.
template <class T>
struct BackwardInputs {
    Heads<const T> grad_out, query, key, value;
    const float* log_sum_exp;
    const float* delta;
};

/// From scores (not yet scaled) and the gradients of weights to weights and gradients of scores; both 0 where masked.
struct ScoreGradient {
    float weight, gradient;
};
[[nodiscard]] __device__ inline ScoreGradient score_gradient(float score, float grad_weight, float log_sum_exp,
                                                             float delta, float scale, bool seen) {
    if (!seen) return {0.0F, 0.0F};
    const float weight = expf(score * scale - log_sum_exp);
    return {weight, weight * (grad_weight - delta) * scale};
}

template <int kTile, int kDimension, class T>
__global__ void __launch_bounds__(kThreads, 1)
    grad_query_kernel(Heads<T> grad_query, BackwardInputs<T> in, Sizes sizes) {
    using L = Layout<kTile, kDimension>;
    MFSDP_DYNAMIC_SHARED(float, shared);
    TileCutter cutter{shared};
    const auto queries = cutter.take<typename L::Rows>();
    const auto grads = cutter.take<typename L::Rows>();
    const auto keys = cutter.take<typename L::Rows>();
    const auto values = cutter.take<typename L::Rows>();
    const auto exchanged = cutter.take<typename L::Scores>();
    const int x = static_cast<int>(threadIdx.x) % kSquare, y = static_cast<int>(threadIdx.x) / kSquare;
    const std::int64_t tile = sizes.tiles - 1 - blockIdx.x % sizes.tiles;
    const Place place = place_of_block(tile, kTile, sizes.tiles, sizes.heads);
    const std::int64_t key_head = place.head / (sizes.heads / sizes.key_heads);

    load_tile(queries, in.query, place.batch, place.first_row, place.head, sizes);
    load_tile(grads, in.grad_out, place.batch, place.first_row, place.head, sizes);
    float log_sum_exp[L::kSide], delta[L::kSide];
    MFSDP_UNROLL
    for (int i = 0; i < L::kSide; ++i) {
        const std::int64_t row = place.first_row + y * L::kSide + i;
        const std::int64_t index = (place.batch * sizes.heads + place.head) * sizes.length + row;
        log_sum_exp[i] = row < sizes.length ? in.log_sum_exp[index] : 0.0F;
        delta[i] = row < sizes.length ? in.delta[index] : 0.0F;
    }
    Sums<L> sums;
    for (std::int64_t first_key = 0; first_key <= place.first_row; first_key += kTile) {
        __syncthreads();  // the last tile's keys have been read
        load_tile(keys, in.key, place.batch, first_key, key_head, sizes);
        load_tile(values, in.value, place.batch, first_key, key_head, sizes);
        __syncthreads();
        float scores[L::kSide][L::kSide], grad_weights[L::kSide][L::kSide];
        multiply_rows<L>(scores, queries, keys, x, y);
        multiply_rows<L>(grad_weights, grads, values, x, y);
        MFSDP_UNROLL
        for (int i = 0; i < L::kSide; ++i) {
            const std::int64_t row = place.first_row + y * L::kSide + i;
            MFSDP_UNROLL
            for (int j = 0; j < L::kSide; ++j) {
                const std::int64_t column = first_key + x + kSquare * j;
                const bool seen = column <= row;
                scores[i][j] =
                    score_gradient(scores[i][j], grad_weights[i][j], log_sum_exp[i], delta[i], sizes.scale, seen)
                        .gradient;
            }
        }
        write_scores<L>(exchanged, scores, x, y);
        __syncthreads();
        add_weighted_rows(sums, exchanged, keys, x, y);
    }
    float one[L::kSide];
    MFSDP_UNROLL
    for (int i = 0; i < L::kSide; ++i) one[i] = 1.0F;
    store_sums(grad_query, place, sums, one, sizes, x, y);
}

template <int kTile, int kDimension, class T>
__global__ void __launch_bounds__(kThreads, 1)
    grad_key_kernel(Heads<T> grad_key, Heads<T> grad_value, BackwardInputs<T> in, Sizes sizes) {
    using L = Layout<kTile, kDimension>;
    MFSDP_DYNAMIC_SHARED(float, shared);
    TileCutter cutter{shared};
    const auto keys = cutter.take<typename L::Rows>();
    const auto values = cutter.take<typename L::Rows>();
    const auto queries = cutter.take<typename L::Rows>();
    const auto grads = cutter.take<typename L::Rows>();
    const auto exchanged = cutter.take<typename L::Scores>();
    const int x = static_cast<int>(threadIdx.x) % kSquare, y = static_cast<int>(threadIdx.x) / kSquare;
    // The first tile is seen by most queries: it starts first.
    const Place place = place_of_block(blockIdx.x % sizes.tiles, kTile, sizes.tiles, sizes.key_heads);
    const std::int64_t group = sizes.heads / sizes.key_heads;

    load_tile(keys, in.key, place.batch, place.first_row, place.head, sizes);
    load_tile(values, in.value, place.batch, place.first_row, place.head, sizes);
    Sums<L> key_sums, value_sums;
    for (std::int64_t head = place.head * group; head < (place.head + 1) * group; ++head) {
        const std::int64_t statistics = (place.batch * sizes.heads + head) * sizes.length;
        for (std::int64_t first_query = place.first_row; first_query < sizes.length; first_query += kTile) {
            __syncthreads();  // the last tile's queries and gradients of scores have been read
            load_tile(queries, in.query, place.batch, first_query, head, sizes);
            load_tile(grads, in.grad_out, place.batch, first_query, head, sizes);
            __syncthreads();
            float scores[L::kSide][L::kSide], grad_weights[L::kSide][L::kSide];
            multiply_rows<L>(scores, keys, queries, x, y);
            multiply_rows<L>(grad_weights, values, grads, x, y);
            MFSDP_UNROLL
            for (int j = 0; j < L::kSide; ++j) {
                const std::int64_t column = first_query + x + kSquare * j;
                const float log_sum_exp = column < sizes.length ? in.log_sum_exp[statistics + column] : 0.0F;
                const float delta = column < sizes.length ? in.delta[statistics + column] : 0.0F;
                MFSDP_UNROLL
                for (int i = 0; i < L::kSide; ++i) {
                    const std::int64_t row = place.first_row + y * L::kSide + i;
                    const ScoreGradient result = score_gradient(scores[i][j], grad_weights[i][j], log_sum_exp, delta,
                                                                sizes.scale, row <= column && column < sizes.length);
                    scores[i][j] = result.weight;
                    grad_weights[i][j] = result.gradient;
                }
            }
            write_scores<L>(exchanged, scores, x, y);
            __syncthreads();
            add_weighted_rows(value_sums, exchanged, grads, x, y);
            __syncthreads();
            write_scores<L>(exchanged, grad_weights, x, y);
            __syncthreads();
            add_weighted_rows(key_sums, exchanged, queries, x, y);
        }
    }
    float one[L::kSide];
    MFSDP_UNROLL
    for (int i = 0; i < L::kSide; ++i) one[i] = 1.0F;
    store_sums(grad_key, place, key_sums, one, sizes, x, y);
    store_sums(grad_value, place, value_sums, one, sizes, x, y);
}

[[nodiscard]] bool is_aligned(std::initializer_list<Tensor> tensors) {
    constexpr std::int64_t kBytes = 16;
    for (const Tensor& tensor : tensors) {
        if (reinterpret_cast<std::uintptr_t>(tensor.data) % kBytes != 0) return false;
        for (std::size_t axis = 0; axis < 3; ++axis) {
            if (tensor.strides[axis] * size_of(tensor.dtype) % kBytes != 0) return false;
        }
    }
    return true;
}

[[nodiscard]] Sizes sizes_of(const Tensor& query, const Tensor& key, float scale, bool aligned) {
    return {query.shape[1], query.shape[2], key.shape[2], query.shape[3], 0, scale, aligned};
}

template <int kValue>
struct Constant {
    static constexpr int value = kValue;
};

/// Calls body(Constant<kDimension>{}) with the head dimension rounded up to one that there are kernels for.
template <class Body>
void with_dimension(std::int64_t dimension, const Body& body) {
    if (dimension <= 32) return body(Constant<32>{});
    if (dimension <= 64) return body(Constant<64>{});
    if (dimension <= 128) return body(Constant<128>{});
    MFSDP_ASSERT(dimension <= 256, "attention: head dimensions go up to 256 on CUDA, got " + std::to_string(dimension));
    body(Constant<256>{});
}

/// The backward keeps four tiles of rows in shared memory where the forward keeps two.
constexpr int kForwardTile = 64;
constexpr int backward_tile(int dimension) { return dimension <= 64 ? 64 : 32; }

[[nodiscard]] Grid grid_of(Sizes& sizes, int tile, std::int64_t slices, std::size_t shared_bytes) {
    sizes.tiles = pieces_of(sizes.length, tile);
    return {static_cast<unsigned>(sizes.tiles * slices), kThreads, shared_bytes};
}

template <class T>
void forward(const Context& context, const AttentionForward& operation) {
    Sizes sizes = sizes_of(operation.query, operation.key, operation.scale,
                           is_aligned({operation.out, operation.query, operation.key, operation.value}));
    const bool raises = operation.max_logits.defined();
    ScratchPlan plan;
    const auto maxima = plan.add<float>(operation.log_sum_exp.count());
    float* const row_maxima = raises ? maxima.at(context.scratch.reserve(plan.bytes())) : nullptr;
    with_dimension(sizes.dimension, [&](auto dimension) {
        constexpr int kDimension = decltype(dimension)::value;
        const Grid grid = grid_of(sizes, kForwardTile, operation.query.shape[0] * sizes.heads,
                                  Layout<kForwardTile, kDimension>::bytes(2));
        launch_kernel(forward_kernel<kForwardTile, kDimension, T>, grid, context.stream, heads_of<T>(operation.out),
                      data<float>(operation.log_sum_exp), row_maxima, heads_of<const T>(operation.query),
                      heads_of<const T>(operation.key), heads_of<const T>(operation.value), sizes);
    });
    if (!raises) return;
    launch_kernel(raise_kernel, Grid{static_cast<unsigned>(sizes.heads), kThreads}, context.stream,
                  data<float>(operation.max_logits), static_cast<const float*>(row_maxima), operation.query.shape[0],
                  sizes.length);
}

template <class T>
void backward(const Context& context, const AttentionBackward& operation) {
    const std::int64_t batch = operation.query.shape[0];
    Sizes sizes = sizes_of(operation.query, operation.key, operation.scale,
                           is_aligned({operation.grad_query, operation.grad_key, operation.grad_value,
                                       operation.grad_out, operation.query, operation.key, operation.value}));
    const std::int64_t rows = operation.delta.count();
    launch_kernel(delta_kernel<T>, Grid{static_cast<unsigned>(pieces_of(rows * kWarpSize, kThreads)), kThreads},
                  context.stream, data<float>(operation.delta), heads_of<const T>(operation.out),
                  heads_of<const T>(operation.grad_out), rows, sizes);
    const BackwardInputs<T> inputs{heads_of<const T>(operation.grad_out),    heads_of<const T>(operation.query),
                                   heads_of<const T>(operation.key),         heads_of<const T>(operation.value),
                                   data<const float>(operation.log_sum_exp), data<const float>(operation.delta)};
    with_dimension(sizes.dimension, [&](auto dimension) {
        constexpr int kDimension = decltype(dimension)::value;
        constexpr int kTile = backward_tile(kDimension);
        constexpr std::size_t kSharedBytes = Layout<kTile, kDimension>::bytes(4);
        const Grid query_grid = grid_of(sizes, kTile, batch * sizes.heads, kSharedBytes);
        launch_kernel(grad_query_kernel<kTile, kDimension, T>, query_grid, context.stream,
                      heads_of<T>(operation.grad_query), inputs, sizes);
        const Grid key_grid = grid_of(sizes, kTile, batch * sizes.key_heads, kSharedBytes);
        launch_kernel(grad_key_kernel<kTile, kDimension, T>, key_grid, context.stream, heads_of<T>(operation.grad_key),
                      heads_of<T>(operation.grad_value), inputs, sizes);
    });
}

}  // namespace

void run(const Context& context, const AttentionForward& operation) {
    if (operation.out.count() == 0) return;
    if (context.fused_attention != nullptr && operation.max_logits.defined()) {
        context.fused_attention->forgo(operation, "cuDNN keeps the largest scores, which QK-clip needs, to itself");
    } else if (context.fused_attention != nullptr && context.fused_attention->forward(context, operation)) {
        return;
    }
    with_value_type(operation.out.dtype, [&](auto type) { forward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const AttentionBackward& operation) {
    if (operation.out.count() == 0) return;
    if (context.fused_attention != nullptr && context.fused_attention->backward(context, operation)) return;
    with_value_type(operation.out.dtype, [&](auto type) { backward<ElementOf<decltype(type)>>(context, operation); });
}

}  // namespace mfsdp::device::cuda
