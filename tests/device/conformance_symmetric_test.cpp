#include "mfsdp/device/ops/symmetric.h"

#include "device/conformance.h"

namespace mfsdp::device::conformance {

namespace {

void add_identity_row(std::vector<Row>& rows, std::int64_t n) {
    rows.push_back(row<FillIdentity>(
        sizes({{"n", n}}), {output("out", {n, n})}, [](Tensors t) { return FillIdentity{t[0]}; },
        [n](Values& v) {
            for (std::size_t i = 0; i < v[0].size(); ++i) v[0][i] = 0.0;
            for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i)
                v[0][i * static_cast<std::size_t>(n) + i] = 1.0;
        },
        Tolerance{}));
}

}  // namespace

std::vector<Row> symmetric_rows() {
    std::vector<Row> rows;
    for (const std::int64_t n : {1, 7, 130}) add_identity_row(rows, n);
    return rows;
}

}  // namespace mfsdp::device::conformance
