#include "device/ops/require.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <string>

namespace mfsdp::device {

namespace {

std::string place(const Argument& argument) {
    return std::string(argument.operation) + ": " + std::string(argument.name) + " is " + argument.tensor.describe();
}

std::string describe_wanted(DType dtype, std::initializer_list<std::int64_t> shape) {
    std::string text(name(dtype));
    text += " [";
    bool first = true;
    for (const std::int64_t size : shape) {
        text += (first ? "" : ", ") + std::to_string(size);
        first = false;
    }
    return text + "]";
}

bool has_shape(const Tensor& tensor, std::initializer_list<std::int64_t> shape) {
    if (static_cast<std::size_t>(tensor.rank) != shape.size()) return false;
    std::size_t axis = 0;
    for (const std::int64_t size : shape) {
        if (tensor.shape[axis++] != size) return false;
    }
    return true;
}

void require_memory(const Argument& argument) {
    MFSDP_ASSERT(argument.tensor.defined() || argument.tensor.count() == 0, place(argument) + " without memory");
}

std::string list(std::span<const DType> types) {
    std::string text;
    for (std::size_t i = 0; i < types.size(); ++i) {
        if (i > 0) text += i + 1 == types.size() ? " or " : ", ";
        text += name(types[i]);
    }
    return text;
}

}  // namespace

void require_type(const Argument& argument, std::span<const DType> types) {
    MFSDP_ASSERT(std::find(types.begin(), types.end(), argument.tensor.dtype) != types.end(),
                 place(argument) + ", wanted " + list(types));
}

void require_same_type(const Argument& argument, const Argument& model) {
    MFSDP_ASSERT(argument.tensor.dtype == model.tensor.dtype,
                 place(argument) + ", wanted the type of " + std::string(model.name) + ", " + model.tensor.describe());
}

void require_shape(const Argument& argument, DType dtype, std::initializer_list<std::int64_t> shape) {
    MFSDP_ASSERT(argument.tensor.dtype == dtype && has_shape(argument.tensor, shape),
                 place(argument) + ", wanted " + describe_wanted(dtype, shape));
    require_memory(argument);
}

void require_rank(const Argument& argument, DType dtype, int rank) {
    MFSDP_ASSERT(
        argument.tensor.dtype == dtype && argument.tensor.rank == rank,
        place(argument) + ", wanted " + std::string(name(dtype)) + " with " + std::to_string(rank) + " dimensions");
    require_memory(argument);
}

void require_dense(const Argument& argument) {
    MFSDP_ASSERT(argument.tensor.is_dense(), place(argument) + " with gaps, wanted dense memory");
}

void require_contiguous_columns(const Argument& argument) {
    const Tensor& tensor = argument.tensor;
    MFSDP_ASSERT(
        tensor.rank > 0 && (tensor.columns() <= 1 || tensor.strides[static_cast<std::size_t>(tensor.rank - 1)] == 1),
        place(argument) + " with strided columns, wanted contiguous ones");
}

void require_apart(const Argument& argument, const Argument& other) {
    MFSDP_ASSERT(argument.tensor.empty() || other.tensor.empty() || argument.tensor.data != other.tensor.data,
                 place(argument) + " in the memory of " + std::string(other.name) + ", wanted memory of its own");
}

}  // namespace mfsdp::device
