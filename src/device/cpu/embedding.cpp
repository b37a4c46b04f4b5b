#include "device/cpu/element.h"
#include "device/cpu/float8.h"
#include "device/cpu/kernels.h"
#include "device/cpu/scratch.h"

#include <algorithm>
#include <cstring>

namespace mfsdp::device::cpu {

namespace {

constexpr std::int64_t kRowsPerPiece = 32;
/// Columns of a row that are added up in registers.
constexpr std::int64_t kColumnsPerBlock = 64;

std::int64_t pieces(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

/// Calls body(row) for all rows, in pieces spread over the threads.
template <class Body>
void for_rows(const Context& context, std::int64_t rows, const Body& body) {
    context.threads.parallel_for(pieces(rows, kRowsPerPiece), [&](std::int64_t piece) {
        const std::int64_t end = std::min(rows, (piece + 1) * kRowsPerPiece);
        for (std::int64_t row = piece * kRowsPerPiece; row < end; ++row) body(row);
    });
}

/// target = `start` + the rows that `for_each_row` names, in its order, rounded once. for_each_row(add) calls add(row)
/// for each row to be added and does so anew for every block of columns.
template <class To, class From, class ForEachRow>
void sum_rows(To* target, std::int64_t columns, Float8 start, const ForEachRow& for_each_row) {
    for (std::int64_t begin = 0; begin < columns; begin += kColumnsPerBlock) {
        const std::int64_t width = std::min(columns - begin, kColumnsPerBlock);
        Float8 sums[kColumnsPerBlock / kLanes];
        std::fill(std::begin(sums), std::end(sums), start);
        for_each_row([&](const From* row) {
            for_vectors(width, [&](std::int64_t i, std::int64_t lanes) {
                sums[i / kLanes] += load_lanes(row + begin + i, lanes);
            });
        });
        for_vectors(width, [&](std::int64_t i, std::int64_t lanes) {
            store_lanes(target + begin + i, sums[i / kLanes], lanes);
        });
    }
}

/// For each row of a table the tokens that name it, as lists in the order of tokens.
struct TokenLists {
    std::int32_t* first;  ///< [rows]: a token or -1
    std::int32_t* next;   ///< [tokens]: a token or -1
};

TokenLists list_tokens(const std::int32_t* ids, std::int64_t tokens, std::int64_t row_begin, std::int64_t rows) {
    std::int32_t* const memory = thread_scratch<std::int32_t>(rows + tokens);
    const TokenLists lists{memory, memory + rows};
    std::fill_n(lists.first, rows, -1);
    // From the last token to the first, each put before the others of its row.
    for (std::int64_t i = tokens - 1; i >= 0; --i) {
        const std::int64_t row = ids[i] - row_begin;
        if (row < 0 || row >= rows) continue;
        lists.next[i] = lists.first[row];
        lists.first[row] = static_cast<std::int32_t>(i);
    }
    return lists;
}

template <class To, class From>
void embedding_backward(const Context& context, const EmbeddingBackward& operation) {
    const std::int64_t tokens = operation.grad_out.shape[0];
    const std::int64_t rows = operation.grad_table.shape[0], columns = operation.grad_table.shape[1];
    To* const grad_table = context.data<To>(operation.grad_table);
    const From* const grad_out = context.data<const From>(operation.grad_out);
    const TokenLists lists =
        list_tokens(context.data<const std::int32_t>(operation.ids), tokens, operation.row_begin, rows);
    for_rows(context, rows, [=](std::int64_t row) {
        sum_rows<To, From>(grad_table + row * columns, columns, Float8{}, [&](const auto& add) {
            for (std::int64_t i = lists.first[row]; i >= 0; i = lists.next[i]) add(grad_out + i * columns);
        });
    });
}

template <class T>
void position_forward(const Context& context, const PositionForward& operation) {
    const std::int64_t batch = operation.x.shape[0], length = operation.x.shape[1], columns = operation.x.shape[2];
    T* const x = context.data<T>(operation.x);
    const T* const positions = context.data<const T>(operation.positions);
    for_rows(context, batch * length, [=](std::int64_t row) {
        T* const target = x + row * columns;
        const T* const source = positions + row % length * columns;
        for_vectors(columns, [=](std::int64_t i, std::int64_t lanes) {
            store_lanes(target + i, load_lanes(target + i, lanes) + load_lanes(source + i, lanes), lanes);
        });
    });
}

template <class To, class From>
void position_backward(const Context& context, const PositionBackward& operation) {
    const std::int64_t batch = operation.grad_x.shape[0], length = operation.grad_x.shape[1];
    const std::int64_t rows = operation.grad_positions.shape[0], columns = operation.grad_x.shape[2];
    To* const grad_positions = context.data<To>(operation.grad_positions);
    const From* const grad_x = context.data<const From>(operation.grad_x);
    for_rows(context, rows, [=](std::int64_t row) {
        const bool used = row < length && batch > 0;
        // Adding to -0 gives every float itself: the first contribution is copied.
        sum_rows<To, From>(grad_positions + row * columns, columns, broadcast(used ? -0.0F : 0.0F),
                           [&](const auto& add) {
                               for (std::int64_t b = 0; used && b < batch; ++b)
                                   add(grad_x + (b * length + row) * columns);
                           });
    });
}

}  // namespace

void run(const Context& context, const EmbeddingForward& operation) {
    const std::int64_t rows = operation.table.shape[0];
    const std::int64_t bytes = operation.out.shape[1] * size_of(operation.out.dtype);
    auto* const out = context.data<std::byte>(operation.out);
    const auto* const table = context.data<const std::byte>(operation.table);
    const std::int32_t* const ids = context.data<const std::int32_t>(operation.ids);
    if (bytes == 0) return;
    for_rows(context, operation.out.shape[0], [=, begin = operation.row_begin](std::int64_t i) {
        const std::int64_t row = ids[i] - begin;
        if (row < 0 || row >= rows) return;
        std::memcpy(out + i * bytes, table + row * bytes, static_cast<std::size_t>(bytes));
    });
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

}  // namespace mfsdp::device::cpu
