#include "device/cpu/panels.h"

#include <algorithm>

namespace mfsdp::device::cpu {

namespace {

// Extents at which oneDNN reaches the speed of the whole product (measured on Zen 3 and AVX2 for the products of
// GPT-2 124M; multiples of the 24 and 16 elements of its register tiles), wide ones first.
constexpr std::int64_t kWideColumns = 192;
constexpr std::int64_t kNarrowColumns = 96;
constexpr std::int64_t kTallRows = 512;
constexpr std::int64_t kShortRows = 192;
// Enough for eight threads; narrower panels are taken only to reach this many.
constexpr std::int64_t kWantedPanels = 8;
// Below this many multiply-adds a product takes no longer than handing it to another thread.
constexpr std::int64_t kSmallProduct = std::int64_t{1} << 19;

}  // namespace

Panels cut_into_panels(std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    const Panels whole{std::max<std::int64_t>(1, rows), std::max<std::int64_t>(1, columns)};
    // In double: three 64-bit extents may overflow.
    if (static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(inner) <
        static_cast<double>(kSmallProduct)) {
        return whole;
    }
    Panels panels{kTallRows, kWideColumns};
    const auto too_few = [&] { return panels.row_panels(rows) * panels.column_panels(columns) < kWantedPanels; };
    if (too_few()) panels.rows = kShortRows;
    if (too_few()) panels.columns = kNarrowColumns;
    return panels;
}

}  // namespace mfsdp::device::cpu
