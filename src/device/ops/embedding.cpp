#include "mfsdp/device/ops/embedding.h"

#include "mfsdp/base/error.h"

#include "device/ops/require.h"

#include <string>

namespace mfsdp::device {

namespace {

/// Both directions read one matrix of tokens by ids and the table's shape.
void check_lookup(std::string_view operation, const Argument& tokens, const Argument& table, const Tensor& ids,
                  std::int64_t row_begin) {
    for (const Argument& argument : {tokens, table}) {
        require_type(argument, kValueTypes);
        require_rank(argument, argument.tensor.dtype, 2);
        require_dense(argument);
    }
    require_shape({operation, "ids", ids}, DType::int32, {tokens.tensor.shape[0]});
    require_dense({operation, "ids", ids});
    MFSDP_ASSERT(tokens.tensor.shape[1] == table.tensor.shape[1],
                 std::string(operation) + ": " + std::string(tokens.name) + " is " + tokens.tensor.describe() +
                     ", wanted as many columns as " + table.tensor.describe());
    MFSDP_ASSERT(tokens.tensor.shape[0] == 0 || table.tensor.shape[0] > 0,
                 std::string(operation) + ": ids need a table with rows");
    MFSDP_ASSERT(row_begin >= 0,
                 std::string(operation) + ": row_begin is " + std::to_string(row_begin) + ", wanted >= 0");
    require_apart(tokens, table);
}

void check_positions(std::string_view operation, const Argument& sequence, const Argument& positions) {
    require_type(sequence, kValueTypes);
    require_type(positions, kValueTypes);
    require_rank(sequence, sequence.tensor.dtype, 3);
    require_rank(positions, positions.tensor.dtype, 2);
    const Tensor& x = sequence.tensor;
    MFSDP_ASSERT(positions.tensor.shape[0] >= x.shape[1] && positions.tensor.shape[1] == x.shape[2],
                 std::string(operation) + ": " + std::string(positions.name) + " is " + positions.tensor.describe() +
                     ", wanted one row for each position of " + x.describe());
    require_dense(sequence);
    require_dense(positions);
    require_apart(sequence, positions);
}

}  // namespace

void EmbeddingForward::check() const {
    check_lookup(kName, {kName, "out", out}, {kName, "table", table}, ids, row_begin);
    require_same_type({kName, "out", out}, {kName, "table", table});
}

Cost EmbeddingForward::cost() const { return {0, 2 * out.bytes() + ids.bytes()}; }

void EmbeddingBackward::check() const {
    if (!grad_table.defined()) return;
    check_lookup(kName, {kName, "grad_out", grad_out}, {kName, "grad_table", grad_table}, ids, row_begin);
}

Cost EmbeddingBackward::cost() const {
    if (!grad_table.defined()) return {};
    return {grad_out.count(), grad_out.bytes() + grad_table.bytes() + ids.bytes()};
}

void PositionForward::check() const {
    check_positions(kName, {kName, "x", x}, {kName, "positions", positions});
    require_same_type({kName, "positions", positions}, {kName, "x", x});
}

Cost PositionForward::cost() const { return {x.count(), 2 * x.bytes() + x.shape[1] * x.shape[2] * size_of(x.dtype)}; }

void PositionBackward::check() const {
    if (!grad_positions.defined()) return;
    check_positions(kName, {kName, "grad_x", grad_x}, {kName, "grad_positions", grad_positions});
}

Cost PositionBackward::cost() const {
    if (!grad_positions.defined()) return {};
    return {grad_x.count(), grad_x.bytes() + grad_positions.bytes()};
}

}  // namespace mfsdp::device
