#include "mfsdp/device/ops/row_moment.h"

#include "mfsdp/base/error.h"

#include "device/ops/require.h"

#include <string>

namespace mfsdp::device {

namespace {

void require_matrix(const Argument& argument) {
    require_rank(argument, DType::float32, 2);
    require_contiguous_columns(argument);
    MFSDP_ASSERT(argument.tensor.rows() <= 1 || argument.tensor.strides[0] >= argument.tensor.columns(),
                 std::string(argument.operation) + ": the rows of " + std::string(argument.name) + " overlap");
}

void require_same_matrix(const Argument& argument, const Argument& model) {
    require_matrix(argument);
    MFSDP_ASSERT(same_shape(argument.tensor, model.tensor),
                 std::string(argument.operation) + ": " + std::string(argument.name) + " is " +
                     argument.tensor.describe() + ", wanted the shape of " + std::string(model.name) + ", " +
                     model.tensor.describe());
}

}  // namespace

void RowMoment::check() const {
    require_matrix({kName, "in", in});
    MFSDP_ASSERT(in.columns() >= 1, "row_moment: a mean is taken over at least one column, got " + in.describe());
    require_shape({kName, "moment", moment}, DType::float32, {in.rows()});
    require_dense({kName, "moment", moment});
}
Cost RowMoment::cost() const { return {2 * in.count() + 4 * in.rows(), in.bytes() + 2 * moment.bytes()}; }

void DivideRows::check() const {
    require_matrix({kName, "in", in});
    require_same_matrix({kName, "out", out}, {kName, "in", in});
    require_shape({kName, "moment", moment}, DType::float32, {in.rows()});
    require_dense({kName, "moment", moment});
}
Cost DivideRows::cost() const { return {in.count() + 2 * in.rows(), 2 * in.bytes() + moment.bytes()}; }

void ScaleByRatio::check() const {
    require_matrix({kName, "in", in});
    require_same_matrix({kName, "out", out}, {kName, "in", in});
    require_shape({kName, "numerator", numerator}, DType::float64, {1});
    require_shape({kName, "denominator", denominator}, DType::float64, {1});
}
Cost ScaleByRatio::cost() const { return {in.count() + 1, 2 * in.bytes() + 16}; }

void CautiousUpdate::check() const {
    require_matrix({kName, "weight", weight});
    require_same_matrix({kName, "direction", direction}, {kName, "weight", weight});
    require_apart({kName, "weight", weight}, {kName, "direction", direction});
}
Cost CautiousUpdate::cost() const { return {4 * weight.count(), 3 * weight.bytes()}; }

}  // namespace mfsdp::device
