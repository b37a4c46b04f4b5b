#include "mfsdp/device/ops/optimizer.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/exact_sum.h"

#include "device/ops/require.h"

#include <array>
#include <span>
#include <string>

namespace mfsdp::device {

namespace {

constexpr std::array kFloat32{DType::float32};

void require_elements(const Argument& argument, std::int64_t count) {
    require_rank(argument, DType::float32, argument.tensor.rank);
    require_dense(argument);
    MFSDP_ASSERT(argument.tensor.count() == count, std::string(argument.operation) + ": " + std::string(argument.name) +
                                                       " is " + argument.tensor.describe() + ", wanted " +
                                                       std::to_string(count) + " elements");
}

// [rows, columns] with strided rows, or a 1-D tensor, which is one row.
void require_matrix(const Argument& argument, std::span<const DType> types) {
    const Tensor& tensor = argument.tensor;
    MFSDP_ASSERT(tensor.rank == 1 || tensor.rank == 2, std::string(argument.operation) + ": " +
                                                           std::string(argument.name) + " is " + tensor.describe() +
                                                           ", wanted one row or a matrix");
    require_type(argument, types);
    require_rank(argument, tensor.dtype, tensor.rank);
    require_contiguous_columns(argument);
}

void require_rows_apart(const Argument& argument) {
    MFSDP_ASSERT(argument.tensor.rank == 1 || argument.tensor.rows() <= 1 ||
                     argument.tensor.strides[0] >= argument.tensor.columns(),
                 std::string(argument.operation) + ": the rows of " + std::string(argument.name) + " overlap");
}

void require_same_matrix(const Argument& argument, const Argument& model, std::span<const DType> types) {
    require_matrix(argument, types);
    MFSDP_ASSERT(same_shape(argument.tensor, model.tensor),
                 std::string(argument.operation) + ": " + std::string(argument.name) + " is " +
                     argument.tensor.describe() + ", wanted the shape of " + std::string(model.name) + ", " +
                     model.tensor.describe());
    require_rows_apart(argument);
}

void require_square_sums(const Argument& argument, const Tensor& matrix, bool by_columns) {
    const std::int64_t rows = matrix.rows(), columns = matrix.columns();
    if (by_columns) {
        require_shape(argument, DType::float64, {columns, square_sums_of(rows)});
    } else {
        require_shape(argument, DType::float64, {rows, square_sums_of(columns)});
    }
    require_dense(argument);
}

}  // namespace

void AdamWStep::check() const {
    MFSDP_ASSERT(count >= 1 && count <= kMaxAdamWTasks,
                 "adamw_step: " + std::to_string(count) + " tasks, wanted 1 to " + std::to_string(kMaxAdamWTasks));
    for (const Task& task : std::span(tasks).first(static_cast<std::size_t>(count))) {
        const std::array<Argument, 4> arguments{{{kName, "weight", task.weight},
                                                 {kName, "exp_avg", task.exp_avg},
                                                 {kName, "exp_avg_sq", task.exp_avg_sq},
                                                 {kName, "gradient", task.gradient}}};
        for (std::size_t i = 0; i < arguments.size(); ++i) {
            require_elements(arguments[i], task.weight.count());
            for (std::size_t j = 0; j < i; ++j) require_apart(arguments[j], arguments[i]);
        }
    }
}
// Four tensors are read and three written.
Cost AdamWStep::cost() const {
    std::int64_t elements = 0;
    for (const Task& task : std::span(tasks).first(static_cast<std::size_t>(count))) elements += task.weight.count();
    return {14 * elements, 7 * elements * size_of(DType::float32)};
}

void MomentumUpdate::check() const {
    const Argument parts[] = {{kName, "momentum", momentum}, {kName, "update", update}, {kName, "gradient", gradient}};
    for (const Argument& part : parts) {
        require_same_matrix(part, parts[0], kFloat32);
        require_dense(part);
    }
    if (square_sums.defined()) require_square_sums({kName, "square_sums", square_sums}, update, by_columns);
    require_apart(parts[1], parts[0]);
    require_apart(parts[1], parts[2]);
    require_apart(parts[0], parts[2]);
}
Cost MomentumUpdate::cost() const {
    const std::int64_t squares = square_sums.defined() ? 2 * update.count() : 0;
    return {(nesterov ? 7 : 5) * momentum.count() + squares,
            4 * momentum.bytes() + (squares > 0 ? square_sums.bytes() : 0)};
}

void BlockSquareSums::check() const {
    require_matrix({kName, "in", in}, kFloat32);
    require_square_sums({kName, "square_sums", square_sums}, in, by_columns);
}
Cost BlockSquareSums::cost() const { return {2 * in.count(), in.bytes() + square_sums.bytes()}; }

void NormOfSquareSums::check() const {
    require_rank({kName, "square_sums", square_sums}, DType::float64, 2);
    require_dense({kName, "square_sums", square_sums});
    require_shape({kName, "norm", norm}, DType::float64, {1});
}
Cost NormOfSquareSums::cost() const { return {square_sums.count() + 1, square_sums.bytes() + norm.bytes()}; }

void FrobeniusNorm::check() const {
    require_matrix({kName, "in", in}, kFloatTypes);
    require_shape({kName, "norm", norm}, DType::float64, {1});
}
Cost FrobeniusNorm::cost() const { return {2 * in.count() + 1, in.bytes() + norm.bytes()}; }

void DivideByNorm::check() const {
    const Argument source{kName, "in", in}, target{kName, "out", out};
    require_matrix(source, kFloat32);
    require_shape({kName, "norm", norm}, DType::float64, {1});
    if (transposed) {
        require_matrix(target, kFloatTypes);
        require_rank(source, in.dtype, 2);
        require_shape(target, out.dtype, {in.columns(), in.rows()});
        require_rows_apart(target);
        require_apart(target, source);
        return;
    }
    require_same_matrix(target, source, kFloatTypes);
    if (out.dtype != in.dtype) require_apart(target, source);
}
Cost DivideByNorm::cost() const { return {in.count(), in.bytes() + out.bytes() + norm.bytes()}; }

void WeightUpdate::check() const {
    require_same_matrix({kName, "weight", weight}, {kName, "weight", weight}, kFloat32);
    require_same_matrix({kName, "direction", direction}, {kName, "weight", weight}, kFloatTypes);
    require_apart({kName, "weight", weight}, {kName, "direction", direction});
}
Cost WeightUpdate::cost() const { return {3 * weight.count(), 2 * weight.bytes() + direction.bytes()}; }

void SquareSum::check() const {
    require_matrix({kName, "in", in}, kFloat32);
    require_shape({kName, "words", words}, DType::int64, {ExactSum::kWords + 1});
    require_dense({kName, "words", words});
}
Cost SquareSum::cost() const { return {2 * in.count(), in.bytes() + 2 * words.bytes()}; }

}  // namespace mfsdp::device
