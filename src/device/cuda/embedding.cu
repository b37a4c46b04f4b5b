#include "device/cuda/kernels.h"
#include "device/cuda/reduce.h"
#include "device/cuda/vectors.h"

namespace mfsdp::device::cuda {

namespace {

/// Elements that may be absent.
template <class Bits>
struct Found {
    Bits bits;
    bool found;
};

template <class Word>
__global__ void __launch_bounds__(kThreads)
    embedding_forward_kernel(View<Word> out, View<const Word> table, const std::int32_t* ids, std::int64_t row_begin,
                             std::int64_t rows, RowExtent<Word, Word> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            Found<decltype(load_bits(table, at))> result{};
            at.row = ids[at.row] - row_begin;
            result.found = at.row >= 0 && at.row < rows;
            if (result.found) result.bits = load_bits(table, at);
            return result;
        },
        [=](auto at, const auto& result) {
            if (result.found) store_bits(out, at, result.bits);
        });
}

template <class Word>
void embedding_forward(const Context& context, const EmbeddingForward& operation) {
    using E = RowExtent<Word, Word>;
    const Tensor &out = operation.out, &table = operation.table;
    const std::int64_t columns = out.shape[1];
    const E extent = extent_of_rows<E>(out.shape[0], columns, {out, table});
    launch_kernel(embedding_forward_kernel<Word>, extent.grid(), context.stream, rows_of<Word>(out, columns),
                  rows_of<const Word>(table, columns), data<const std::int32_t>(operation.ids), operation.row_begin,
                  table.shape[0], extent);
}

// EmbeddingBackward finds for each row of the table the tokens that name it, without sorting and without atomic
// additions of floats, whose order would be another on every run:
// 1. one block goes through the ids in order and keeps those of this table: `keys` (their rows) and `tokens`;
// 2. every kept token counts the tokens of lower rows and those of its own row: that is its place in `sorted`, and the
//    first of a row writes where the row's tokens begin and how many there are;
// 3. one block for each row and stretch of columns adds the row's tokens, eight by eight.

struct TokenLists {
    std::int32_t* keys;    ///< [n], the first `kept` are used
    std::int32_t* tokens;  ///< [n], likewise, in order
    std::int32_t* sorted;  ///< [n], likewise: tokens by row, then in order
    std::int32_t* begin;   ///< [rows]: index into `sorted`
    std::int32_t* count;   ///< [rows]: tokens of the row
    std::int32_t* kept;    ///< [1]
};

constexpr int kSelectThreads = 1024;
constexpr int kIdsPerThread = 4;

/// Sum of `value` over the lower lanes of the warp.
__device__ inline int sum_of_lower_lanes(int value) {
    int sum = value;
    MFSDP_UNROLL
    for (unsigned offset = 1; offset < kWarpSize; offset *= 2) {
        const int lower = __shfl_up_sync(0xFFFFFFFFU, sum, offset);
        if (threadIdx.x % kWarpSize >= offset) sum += lower;
    }
    return sum - value;
}

__global__ void __launch_bounds__(kSelectThreads)
    select_tokens_kernel(TokenLists lists, const std::int32_t* ids, std::int64_t tokens, std::int64_t row_begin,
                         std::int64_t rows) {
    MFSDP_SHARED(int, totals[2][kSelectThreads / kWarpSize]);
    const int warps = static_cast<int>(blockDim.x) / kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x) lists.count[row] = 0;
    int kept = 0;
    int parity = 0;  // totals of one tile are read while those of the next are written
    for (std::int64_t tile = 0; tile < tokens; tile += blockDim.x * kIdsPerThread, parity ^= 1) {
        const std::int64_t first = tile + static_cast<std::int64_t>(threadIdx.x) * kIdsPerThread;
        std::int64_t keys[kIdsPerThread];
        int found = 0;
        MFSDP_UNROLL
        for (int i = 0; i < kIdsPerThread; ++i) {
            keys[i] = first + i < tokens ? ids[first + i] - row_begin : -1;
            if (keys[i] >= rows) keys[i] = -1;
            found += keys[i] >= 0 ? 1 : 0;
        }
        const int lower = sum_of_lower_lanes(found);
        if (threadIdx.x % kWarpSize == kWarpSize - 1) totals[parity][warp] = lower + found;
        __syncthreads();
        int place = kept + lower;
        for (int i = 0; i < warps; ++i) {
            if (i < warp) place += totals[parity][i];
            kept += totals[parity][i];
        }
        MFSDP_UNROLL
        for (int i = 0; i < kIdsPerThread; ++i) {
            if (keys[i] < 0) continue;
            lists.keys[place] = static_cast<std::int32_t>(keys[i]);
            lists.tokens[place] = static_cast<std::int32_t>(first + i);
            ++place;
        }
    }
    if (threadIdx.x == 0) *lists.kept = kept;
}

__global__ void __launch_bounds__(kThreads) sort_tokens_kernel(TokenLists lists) {
    constexpr int kTile = 4 * kThreads;
    MFSDP_SHARED(std::int32_t, keys[kTile]);
    const std::int64_t kept = *lists.kept;
    if (static_cast<std::int64_t>(blockIdx.x) * kThreads >= kept) return;
    const std::int64_t index = global_index();
    const std::int32_t key = index < kept ? lists.keys[index] : -1;
    int lower = 0, equal = 0, equal_before = 0;
    for (std::int64_t tile = 0; tile < kept; tile += kTile) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < kTile; i += kThreads) {
            keys[i] = tile + i < kept ? lists.keys[tile + i] : INT32_MAX;
        }
        __syncthreads();
        const std::int64_t own = index - tile;  // beyond [0, kTile) in most tiles
        const int split = own < 0 ? 0 : own > kTile ? kTile : static_cast<int>(own);
        for (int i = 0; i < split; ++i) {
            lower += keys[i] < key ? 1 : 0;
            equal += keys[i] == key ? 1 : 0;
        }
        if (own >= 0) equal_before = equal;  // no key of a tile after the own one comes before the token
        for (int i = split; i < kTile; ++i) {
            lower += keys[i] < key ? 1 : 0;
            equal += keys[i] == key ? 1 : 0;
        }
    }
    if (index >= kept) return;
    lists.sorted[lower + equal_before] = lists.tokens[index];
    if (equal_before > 0) return;
    lists.begin[key] = lower;
    lists.count[key] = equal;
}

constexpr int kTokensAtOnce = 8;

/// One row of the table and 32 vectors of its columns: threadIdx.y takes every kTokensAtOnce-th token of the row, the
/// sums of the eight are added in order.
template <class To, class From>
__global__ void __launch_bounds__(kWarpSize* kTokensAtOnce)
    sum_tokens_kernel(To* grad_table, const From* grad_out, TokenLists lists, std::int64_t columns,
                      std::int64_t blocks_in_row, bool aligned) {
    constexpr int kLanes = kLanesOf<To, From>;
    constexpr int kInFlight = 4;
    MFSDP_SHARED(float, partial[kTokensAtOnce][kLanes][kWarpSize]);
    const std::int64_t row = quotient(blockIdx.x, blocks_in_row);
    const std::int64_t column =
        ((blockIdx.x - row * blocks_in_row) * kWarpSize + static_cast<std::int64_t>(threadIdx.x)) * kLanes;
    const bool whole = aligned && column + kLanes <= columns;
    const std::int64_t lanes = columns - column;  // of the row's last vector, 0 or less beyond it
    const std::int32_t count = lists.count[row];
    const std::int32_t* const tokens = lists.sorted + (count > 0 ? lists.begin[row] : 0);
    Floats<kLanes> sum{};
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.y); i < count; i += kTokensAtOnce * kInFlight) {
        Floats<kLanes> values[kInFlight];
        MFSDP_UNROLL
        for (int k = 0; k < kInFlight; ++k) {
            values[k] = {};
            if (i + k * kTokensAtOnce >= count) continue;
            const From* const source = grad_out + tokens[i + k * kTokensAtOnce] * columns + column;
            if (whole) {
                values[k] = load<kLanes>(source);
            } else {
                MFSDP_UNROLL
                for (int lane = 0; lane < kLanes; ++lane) {
                    if (lane < lanes) values[k].lane[lane] = widened(source[lane]);
                }
            }
        }
        MFSDP_UNROLL
        for (int k = 0; k < kInFlight; ++k) {
            MFSDP_UNROLL
            for (int lane = 0; lane < kLanes; ++lane) sum.lane[lane] += values[k].lane[lane];
        }
    }
    if (count > 1) {  // the same for the whole block
        MFSDP_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) partial[threadIdx.y][lane][threadIdx.x] = sum.lane[lane];
        __syncthreads();
    }
    if (threadIdx.y > 0) return;
    for (int y = 1; y < kTokensAtOnce && y < count; ++y) {
        MFSDP_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) sum.lane[lane] += partial[y][lane][threadIdx.x];
    }
    To* const target = grad_table + row * columns + column;
    if (whole) {
        store(target, sum);
    } else {
        MFSDP_UNROLL
        for (int lane = 0; lane < kLanes; ++lane) {
            if (lane < lanes) target[lane] = rounded<To>(sum.lane[lane]);
        }
    }
}

TokenLists list_tokens(const Context& context, const EmbeddingBackward& operation) {
    const std::int64_t tokens = operation.grad_out.shape[0], rows = operation.grad_table.shape[0];
    ScratchPlan plan;
    const auto keys = plan.add<std::int32_t>(tokens), places = plan.add<std::int32_t>(tokens);
    const auto sorted = plan.add<std::int32_t>(tokens);
    const auto begin = plan.add<std::int32_t>(rows), count = plan.add<std::int32_t>(rows);
    const auto kept = plan.add<std::int32_t>(1);
    std::byte* const base = context.scratch.reserve(plan.bytes());
    const TokenLists lists{keys.at(base),  places.at(base), sorted.at(base),
                           begin.at(base), count.at(base),  kept.at(base)};
    const int select_threads = threads_for(pieces_of(tokens, kIdsPerThread), kSelectThreads);
    launch_kernel(select_tokens_kernel, Grid{1, static_cast<unsigned>(select_threads)}, context.stream, lists,
                  data<const std::int32_t>(operation.ids), tokens, operation.row_begin, rows);
    launch_kernel(sort_tokens_kernel, Grid{static_cast<unsigned>(pieces_of(tokens, kThreads)), kThreads},
                  context.stream, lists);
    return lists;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    position_forward_kernel(View<T> x, View<const T> positions, std::int64_t length, RowExtent<T, T, T> extent) {
    for_vectors(
        extent,
        [=](auto at) {
            auto position = at;
            position.row = at.row - quotient(at.row, length) * length;
            auto sum = load(x, at);
            const auto added = load(positions, position);
            MFSDP_UNROLL
            for (int i = 0; i < at.kLanes; ++i) sum.lane[i] += added.lane[i];
            return sum;
        },
        [=](auto at, const auto& sum) { store(x, at, sum); });
}

/// Each vector of the result adds its contributions in the order of sequences.
template <class To, class From>
__global__ void __launch_bounds__(kThreads)
    position_backward_kernel(View<To> grad_positions, View<const From> grad_x, std::int64_t batch, std::int64_t length,
                             Extent<kLanesOf<To, From>, 1, true> extent) {
    constexpr int kInFlight = 2;
    for_vectors(
        extent,
        [=](auto at) {
            constexpr int kLanes = decltype(at)::kLanes;
            Floats<kLanes> sum{};
            if (at.row >= length) return sum;
            for (std::int64_t first = 0; first < batch; first += kInFlight) {
                Floats<kLanes> values[kInFlight];
                MFSDP_UNROLL
                for (int i = 0; i < kInFlight; ++i) {
                    values[i] = {};
                    if (first + i >= batch) continue;
                    values[i] = load(grad_x, Place<kLanes>{(first + i) * length + at.row, at.column});
                }
                MFSDP_UNROLL
                for (int i = 0; i < kInFlight; ++i) {
                    MFSDP_UNROLL
                    for (int lane = 0; lane < kLanes; ++lane) sum.lane[lane] += values[i].lane[lane];
                }
            }
            return sum;
        },
        [=](auto at, const auto& sum) { store(grad_positions, at, sum); });
}

template <class T>
void position_forward(const Context& context, const PositionForward& operation) {
    using E = RowExtent<T, T, T>;
    const Tensor &x = operation.x, &positions = operation.positions;
    const std::int64_t columns = x.shape[2];
    const E extent = extent_of_rows<E>(x.rows(), columns, {x, positions});
    launch_kernel(position_forward_kernel<T>, extent.grid(), context.stream, rows_of<T>(x, columns),
                  rows_of<const T>(positions, columns), x.shape[1], extent);
}

template <class To, class From>
void position_backward(const Context& context, const PositionBackward& operation) {
    using E = Extent<kLanesOf<To, From>, 1, true>;
    const Tensor &grad_positions = operation.grad_positions, &grad_x = operation.grad_x;
    const std::int64_t columns = grad_x.shape[2];
    const E extent = extent_of_rows<E>(grad_positions.shape[0], columns, {grad_positions, grad_x});
    launch_kernel(position_backward_kernel<To, From>, extent.grid(), context.stream,
                  rows_of<To>(grad_positions, columns), rows_of<const From>(grad_x, columns), grad_x.shape[0],
                  grad_x.shape[1], extent);
}

template <class To, class From>
void embedding_backward(const Context& context, const EmbeddingBackward& operation) {
    constexpr int kLanes = kLanesOf<To, From>;
    const Tensor &grad_table = operation.grad_table, &grad_out = operation.grad_out;
    const TokenLists lists = list_tokens(context, operation);
    const std::int64_t columns = grad_table.shape[1];
    const std::int64_t blocks_in_row = pieces_of(columns, kWarpSize * kLanes);
    const bool aligned = is_aligned(grad_table, kLanes, true) && is_aligned(grad_out, kLanes, true);
    launch_kernel(sum_tokens_kernel<To, From>,
                  Grid{static_cast<unsigned>(grad_table.shape[0] * blocks_in_row), dim3(kWarpSize, kTokensAtOnce)},
                  context.stream, data<To>(grad_table), data<From>(grad_out), lists, columns, blocks_in_row, aligned);
}

}  // namespace

void run(const Context& context, const EmbeddingForward& operation) {
    if (size_of(operation.out.dtype) == 2) {
        embedding_forward<std::uint16_t>(context, operation);
    } else {
        embedding_forward<std::uint32_t>(context, operation);
    }
}

void run(const Context& context, const EmbeddingBackward& operation) {
    if (operation.grad_table.empty()) return;
    with_value_type(operation.grad_table.dtype, [&](auto to) {
        with_value_type(operation.grad_out.dtype, [&](auto from) {
            embedding_backward<ElementOf<decltype(to)>, ElementOf<decltype(from)>>(context, operation);
        });
    });
}

void run(const Context& context, const PositionForward& operation) {
    with_value_type(operation.x.dtype,
                    [&](auto type) { position_forward<ElementOf<decltype(type)>>(context, operation); });
}

void run(const Context& context, const PositionBackward& operation) {
    if (operation.grad_positions.empty()) return;
    with_value_type(operation.grad_positions.dtype, [&](auto to) {
        with_value_type(operation.grad_x.dtype, [&](auto from) {
            position_backward<ElementOf<decltype(to)>, ElementOf<decltype(from)>>(context, operation);
        });
    });
}

}  // namespace mfsdp::device::cuda
