#include "device/cpu/panels.h"

#include <algorithm>
#include <iterator>

namespace mfsdp::device::cpu {

namespace {

// Multiples of the register tiles (6 x 16 of our kernel, 24 x 4 of oneDNN's), large ones first: each operand of a panel
// is packed anew, so larger is faster; 192 x 96 loses up to a sixth (measured on Zen 3 for the products of GPT-2 124M).
constexpr Panels kExtents[] = {{384, 384}, {384, 192}, {384, 96}, {192, 96}};
// Enough for eight threads; smaller panels are taken only to reach this many.
constexpr std::int64_t kWantedPanels = 8;
// Below this many multiply-adds a product takes no longer than handing it to another thread.
constexpr double kSmallProduct = 0x1p19;

}  // namespace

Panels cut_into_panels(std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    // In double: the product of three 64-bit extents may overflow.
    const double multiplications =
        static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(inner);
    if (multiplications < kSmallProduct) return {std::max<std::int64_t>(1, rows), std::max<std::int64_t>(1, columns)};
    for (const Panels& panels : kExtents) {
        if (panels.row_panels(rows) * panels.column_panels(columns) >= kWantedPanels) return panels;
    }
    return *std::rbegin(kExtents);
}

Panels cut_symmetric(std::int64_t size, std::int64_t inner) {
    // Half of the panels are left out, so that there are enough of the smaller ones only.
    const Panels whole = cut_into_panels(size, size, inner);
    return {whole.rows, std::min<std::int64_t>(whole.columns, kExtents[1].columns)};
}

}  // namespace mfsdp::device::cpu
