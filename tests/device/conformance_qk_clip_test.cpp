#include "mfsdp/device/ops/qk_clip.h"

#include "device/conformance.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::device::conformance {

namespace {

using Size = std::size_t;

struct ClipCase {
    std::int64_t queries, keys, rows_in_group, columns;  // 0 columns: a bias
    std::int64_t row_begin = 0, rows = 0;                // 0 rows: all
};

void add_clip_row(std::vector<Row>& rows, const ClipCase& c, double exponent) {
    const std::int64_t count = c.rows > 0 ? c.rows : c.keys * c.rows_in_group;
    const Shape shape = c.columns == 0 ? Shape{count} : Shape{count, c.columns};
    rows.push_back(row<QkClip>(
        sizes({{"queries", c.queries},
               {"keys", c.keys},
               {"rows_in_group", c.rows_in_group},
               {"n", c.columns},
               {"begin", c.row_begin},
               {"m", count}}) +
            " exponent " + std::to_string(exponent),
        {in_out("weight", shape, normal(), c.columns == 0 ? Gaps::forbidden : Gaps::allowed),
         input("logits", {c.queries}, list({30.0, 250.0, -5.0, 100.0, 101.0, 90.0}))},
        [=](Tensors t) {
            return QkClip{.weight = t[0],
                          .logits = t[1],
                          .key_heads = c.keys,
                          .rows_in_group = c.rows_in_group,
                          .row_begin = c.row_begin,
                          .exponent = exponent};
        },
        [=](Values& v) {
            const std::int64_t width = std::max<std::int64_t>(1, c.columns), in_group = c.queries / c.keys;
            for (Size i = 0; i < v[0].size(); ++i) {
                const std::int64_t row = c.row_begin + static_cast<std::int64_t>(i) / width;
                const auto first = v[1].begin() + row / c.rows_in_group * in_group;
                const double largest = *std::max_element(first, first + in_group);
                if (largest > 100.0) v[0][i] *= std::pow(100.0 / largest, exponent);
            }
        },
        Tolerance{.of_value = 2e-7}));
}

}  // namespace

std::vector<Row> qk_clip_rows() {
    std::vector<Row> rows;
    for (const ClipCase& c : {ClipCase{1, 1, 2, 3}, ClipCase{6, 6, 4, 10}, ClipCase{6, 3, 8, 10}, ClipCase{6, 2, 9, 0},
                              ClipCase{6, 3, 8, 10, 5, 13}, ClipCase{6, 6, 4, 7, 4, 4}, ClipCase{6, 3, 4, 0, 7, 2}}) {
        add_clip_row(rows, c, 0.25);
        add_clip_row(rows, c, 1.0);
    }
    return rows;
}

}  // namespace mfsdp::device::conformance
