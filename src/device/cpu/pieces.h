#pragma once

#include "device/cpu/thread_pool.h"

#include <algorithm>
#include <cstdint>

namespace mfsdp::device::cpu {

/// Elements of one piece of elementwise work: 64 KiB of float32, large enough to hide the cost of handing it out.
inline constexpr std::int64_t kPieceElements = 16384;

/// Calls body(begin, size) for consecutive pieces of `piece` elements of [0, count), on any threads.
template <class Body>
void for_pieces(ThreadPool& threads, std::int64_t count, std::int64_t piece, const Body& body) {
    threads.parallel_for((count + piece - 1) / piece, [&](std::int64_t index) {
        const std::int64_t begin = index * piece;
        body(begin, std::min(piece, count - begin));
    });
}

/// Calls body(row, column_begin, size) so that every element of [rows, columns] is in one call and no call crosses a
/// row: many short rows or a part of a long one make a piece.
template <class Body>
void for_row_pieces(ThreadPool& threads, std::int64_t rows, std::int64_t columns, const Body& body) {
    if (rows <= 0 || columns <= 0) return;
    if (columns >= kPieceElements) {
        const std::int64_t per_row = (columns + kPieceElements - 1) / kPieceElements;
        threads.parallel_for(rows * per_row, [&](std::int64_t index) {
            const std::int64_t begin = index % per_row * kPieceElements;
            body(index / per_row, begin, std::min(kPieceElements, columns - begin));
        });
        return;
    }
    for_pieces(threads, rows, kPieceElements / columns, [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t row = first; row < first + count; ++row) body(row, std::int64_t{0}, columns);
    });
}

}  // namespace mfsdp::device::cpu
