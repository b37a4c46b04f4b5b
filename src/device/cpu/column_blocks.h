#pragma once

#include "device/cpu/element.h"
#include "device/cpu/float8.h"
#include "device/cpu/thread_pool.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace mfsdp::device::cpu {

/// Rows that are added to each other before they are added to the total of a column.
inline constexpr std::int64_t kRowsPerBlock = 64;
/// Columns of one piece of work: 256 bytes of each row, so that pieces share no cache line.
inline constexpr std::int64_t kColumnsPerPanel = 64;

/// Column sums over many rows: total[s][c] = sum over blocks of kRowsPerBlock rows, in order, of the sum over the rows
/// of the block, in order, of term s at (row, c). Pieces of work are panels of columns, so the order of additions does
/// not depend on threads. Each `totals[s]` has `columns` elements and is written, rounded once; no rows give 0; a null
/// one is not wanted.
///
/// terms_of(row) gives what adds the row's terms: add(column, lanes, sums) adds those for columns
/// [column, column + lanes) to sums[0 .. kSums); lanes beyond `lanes` are not used.
template <int kSums, class To, class TermsOf>
void sum_columns(ThreadPool& threads, std::int64_t rows, std::int64_t columns, To* const (&totals)[kSums],
                 const TermsOf& terms_of) {
    if (std::all_of(std::begin(totals), std::end(totals), [](const To* total) { return total == nullptr; })) return;
    constexpr std::int64_t kVectors = kColumnsPerPanel / kLanes;
    const std::int64_t panels = (columns + kColumnsPerPanel - 1) / kColumnsPerPanel;
    threads.parallel_for(panels, [&](std::int64_t panel) {
        const std::int64_t first = panel * kColumnsPerPanel;
        const std::int64_t width = std::min(columns - first, kColumnsPerPanel);
        Float8 total[kVectors][kSums]{};
        for (std::int64_t block = 0; block < rows; block += kRowsPerBlock) {
            Float8 partial[kVectors][kSums]{};
            const std::int64_t end = std::min(rows, block + kRowsPerBlock);
            for (std::int64_t row = block; row < end; ++row) {
                const auto add = terms_of(row);
                for_vectors(width,
                            [&](std::int64_t i, std::int64_t lanes) { add(first + i, lanes, partial[i / kLanes]); });
            }
            for (std::int64_t vector = 0; vector < kVectors; ++vector) {
                for (int s = 0; s < kSums; ++s) total[vector][s] += partial[vector][s];
            }
        }
        for_vectors(width, [&](std::int64_t i, std::int64_t lanes) {
            for (int s = 0; s < kSums; ++s) {
                if (totals[s] != nullptr) store_lanes(totals[s] + first + i, total[i / kLanes][s], lanes);
            }
        });
    });
}

}  // namespace mfsdp::device::cpu
