#include "mfsdp/device/ops/embedding.h"

#include "device/conformance.h"

#include <algorithm>

namespace mfsdp::device::conformance {

namespace {

/// Types of the table (or its gradient) and of the tokens.
struct Types {
    DType table = DType::float32, tokens = DType::float32;
};

/// `rows` of the table begin at row `begin` of a vocabulary of `vocabulary`.
struct Lookup {
    std::int64_t rows, columns, tokens;
    std::int64_t begin = 0, vocabulary = 0;
    Types types{};
    [[nodiscard]] std::string text() const {
        return sizes({{"V", rows}, {"C", columns}, {"n", tokens}, {"begin", begin}}) +
               suffix({types.table, types.tokens});
    }
};

/// Row of the table that token i looks up, or -1.
std::ptrdiff_t row_of(const std::vector<double>& ids, std::size_t i, const Lookup& size) {
    const auto row = static_cast<std::int64_t>(ids[i]) - size.begin;
    return row >= 0 && row < size.rows ? static_cast<std::ptrdiff_t>(row) : -1;
}

void add_forward_row(std::vector<Row>& rows, const Lookup& size, const ArgumentOfRow& ids) {
    // in_out: rows of ids outside the table must keep what they hold.
    rows.push_back(row<EmbeddingForward>(
        size.text(),
        {input("table", {size.rows, size.columns}, normal(), Gaps::forbidden, size.types.table), ids,
         in_out("out", {size.tokens, size.columns}, normal(), Gaps::forbidden, size.types.table)},
        [begin = size.begin](Tensors t) {
            return EmbeddingForward{t[2], t[0], t[1], begin};
        },
        [size](Values& v) {
            const auto columns = static_cast<std::size_t>(size.columns);
            for (std::size_t i = 0; i < v[2].size(); ++i) {
                const std::ptrdiff_t row = row_of(v[1], i / columns, size);
                if (row >= 0) v[2][i] = v[0][static_cast<std::size_t>(row) * columns + i % columns];
            }
        },
        Tolerance{}));
}

void add_backward_row(std::vector<Row>& rows, const Lookup& size, const ArgumentOfRow& ids) {
    rows.push_back(row<EmbeddingBackward>(
        size.text(),
        {input("grad_out", {size.tokens, size.columns}, normal(), Gaps::forbidden, size.types.tokens), ids,
         output("grad_table", {size.rows, size.columns}, Gaps::forbidden, size.types.table)},
        [begin = size.begin](Tensors t) {
            return EmbeddingBackward{t[2], t[0], t[1], begin};
        },
        [size](Values& v) {
            const auto columns = static_cast<std::size_t>(size.columns);
            std::fill(v[2].begin(), v[2].end(), 0.0);
            for (std::size_t i = 0; i < v[0].size(); ++i) {
                const std::ptrdiff_t row = row_of(v[1], i / columns, size);
                if (row >= 0) v[2][static_cast<std::size_t>(row) * columns + i % columns] += v[0][i];
            }
        },
        Tolerance{.of_largest = 1e-6}));
}

void add_lookup_rows(std::vector<Row>& rows, const Lookup& size) {
    const std::int64_t vocabulary = size.vocabulary == 0 ? size.rows : size.vocabulary;
    const ArgumentOfRow ids = input("ids", {size.tokens}, integers(0, vocabulary), Gaps::forbidden, DType::int32);
    if (size.types.table == size.types.tokens) add_forward_row(rows, size, ids);
    add_backward_row(rows, size, ids);
}

struct Sequence {
    std::int64_t batch, length, positions, columns;
    Types types{};
    [[nodiscard]] std::string text() const {
        return sizes({{"B", batch}, {"T", length}, {"P", positions}, {"C", columns}}) +
               suffix({types.table, types.tokens});
    }
};

void add_position_rows(std::vector<Row>& rows, const Sequence& size) {
    const auto rows_of = static_cast<std::size_t>(size.length * size.columns);
    if (size.types.table == size.types.tokens) {
        rows.push_back(row<PositionForward>(
            size.text(),
            {in_out("x", {size.batch, size.length, size.columns}, normal(), Gaps::forbidden, size.types.tokens),
             input("positions", {size.positions, size.columns}, normal(), Gaps::forbidden, size.types.table)},
            [](Tensors t) {
                return PositionForward{t[0], t[1]};
            },
            [rows_of](Values& v) {
                for (std::size_t i = 0; i < v[0].size(); ++i) v[0][i] += v[1][i % rows_of];
            },
            Tolerance{}));
    }
    rows.push_back(row<PositionBackward>(
        size.text(),
        {input("grad_x", {size.batch, size.length, size.columns}, normal(), Gaps::forbidden, size.types.tokens),
         output("grad_positions", {size.positions, size.columns}, Gaps::forbidden, size.types.table)},
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
    constexpr DType kFloat = DType::float32, kHalf = DType::bfloat16;
    std::vector<Row> rows;
    for (const Lookup& size : {Lookup{1, 1, 1}, Lookup{11, 5, 7}, Lookup{3, 64, 200}, Lookup{70, 131, 257},
                               Lookup{10, 12, 60, 0, 30}, Lookup{10, 12, 60, 10, 30}, Lookup{10, 12, 60, 20, 30},
                               Lookup{20, 3, 5000, 10, 40}, Lookup{10, 12, 300, 0, 100}}) {
        add_lookup_rows(rows, size);
    }
    for (const Types& types : {Types{kHalf, kHalf}, Types{kFloat, kHalf}, Types{kHalf, kFloat}}) {
        add_lookup_rows(rows, {11, 5, 7, 0, 0, types});
        add_lookup_rows(rows, {40, 131, 257, 40, 100, types});
        add_position_rows(rows, {3, 7, 9, 65, types});
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
