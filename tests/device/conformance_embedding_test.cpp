#include "mfsdp/device/ops/embedding.h"

#include "device/conformance.h"

#include <algorithm>

namespace mfsdp::device::conformance {

namespace {

struct Lookup {
    std::int64_t vocabulary, columns, tokens;
    [[nodiscard]] std::string text() const { return sizes({{"V", vocabulary}, {"C", columns}, {"n", tokens}}); }
};

void add_lookup_rows(std::vector<Row>& rows, const Lookup& size) {
    const auto columns = static_cast<std::size_t>(size.columns);
    const ArgumentOfRow ids = input("ids", {size.tokens}, integers(0, size.vocabulary), Gaps::forbidden, DType::int32);
    rows.push_back(row<EmbeddingForward>(
        size.text(), {input("table", {size.vocabulary, size.columns}), ids, output("out", {size.tokens, size.columns})},
        [](Tensors t) {
            return EmbeddingForward{t[2], t[0], t[1]};
        },
        [columns](Values& v) {
            for (std::size_t i = 0; i < v[2].size(); ++i) {
                v[2][i] = v[0][static_cast<std::size_t>(v[1][i / columns]) * columns + i % columns];
            }
        },
        Tolerance{}));
    rows.push_back(row<EmbeddingBackward>(
        size.text(),
        {input("grad_out", {size.tokens, size.columns}), ids, output("grad_table", {size.vocabulary, size.columns})},
        [](Tensors t) {
            return EmbeddingBackward{t[2], t[0], t[1]};
        },
        [columns](Values& v) {
            std::fill(v[2].begin(), v[2].end(), 0.0);
            for (std::size_t i = 0; i < v[0].size(); ++i) {
                v[2][static_cast<std::size_t>(v[1][i / columns]) * columns + i % columns] += v[0][i];
            }
        },
        Tolerance{.of_largest = 1e-6}));
}

struct Sequence {
    std::int64_t batch, length, positions, columns;
    [[nodiscard]] std::string text() const {
        return sizes({{"B", batch}, {"T", length}, {"P", positions}, {"C", columns}});
    }
};

void add_position_rows(std::vector<Row>& rows, const Sequence& size) {
    const auto rows_of = static_cast<std::size_t>(size.length * size.columns);
    rows.push_back(row<PositionForward>(
        size.text(),
        {in_out("x", {size.batch, size.length, size.columns}), input("positions", {size.positions, size.columns})},
        [](Tensors t) {
            return PositionForward{t[0], t[1]};
        },
        [rows_of](Values& v) {
            for (std::size_t i = 0; i < v[0].size(); ++i) v[0][i] += v[1][i % rows_of];
        },
        Tolerance{}));
    rows.push_back(row<PositionBackward>(
        size.text(),
        {input("grad_x", {size.batch, size.length, size.columns}),
         output("grad_positions", {size.positions, size.columns})},
        [](Tensors t) {
            return PositionBackward{t[1], t[0]};
        },
        [rows_of](Values& v) {
            std::fill(v[1].begin(), v[1].end(), 0.0);
            for (std::size_t i = 0; i < v[0].size(); ++i) v[1][i % rows_of] += v[0][i];
        },
        Tolerance{.of_largest = 1e-6}));
}

}  // namespace

std::vector<Row> embedding_rows() {
    std::vector<Row> rows;
    for (const Lookup& size : {Lookup{1, 1, 1}, Lookup{11, 5, 7}, Lookup{3, 64, 200}, Lookup{70, 131, 257}}) {
        add_lookup_rows(rows, size);
    }
    std::vector<Row> none;
    add_lookup_rows(none, {4, 3, 0});
    for (Row& empty : none) rows.push_back(allow_empty(std::move(empty)));
    for (const Sequence& size : {Sequence{1, 1, 1, 1}, Sequence{2, 3, 5, 7}, Sequence{3, 70, 70, 65}}) {
        add_position_rows(rows, size);
    }
    none.clear();
    add_position_rows(none, {0, 3, 4, 2});
    for (Row& empty : none) rows.push_back(allow_empty(std::move(empty)));
    return rows;
}

}  // namespace mfsdp::device::conformance
