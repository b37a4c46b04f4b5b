#include "mfsdp/device/tensor.h"

#include "mfsdp/base/error.h"

namespace mfsdp::device {

namespace {

constexpr std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

Tensor Tensor::dense(std::byte* address, DType dtype, std::initializer_list<std::int64_t> dimensions) {
    MFSDP_ASSERT(dimensions.size() <= at(kMaxRank), "a tensor has at most four dimensions");
    Tensor result;
    result.data = address;
    result.dtype = dtype;
    for (const std::int64_t size : dimensions) {
        MFSDP_ASSERT(size >= 0, "sizes are not negative");
        result.shape[at(result.rank++)] = size;
    }
    std::int64_t stride = 1;
    for (int axis = result.rank - 1; axis >= 0; --axis) {
        result.strides[at(axis)] = stride;
        stride *= result.shape[at(axis)];
    }
    return result;
}

std::int64_t Tensor::count() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < rank; ++axis) product *= shape[at(axis)];
    return product;
}

bool Tensor::is_dense() const {
    std::int64_t expected = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
        if (shape[at(axis)] != 1 && strides[at(axis)] != expected) return false;
        expected *= shape[at(axis)];
    }
    return true;
}

std::int64_t Tensor::rows() const {
    std::int64_t product = 1;
    for (int axis = 0; axis + 1 < rank; ++axis) product *= shape[at(axis)];
    return product;
}

Tensor Tensor::slice(int axis, std::int64_t begin, std::int64_t size) const {
    MFSDP_ASSERT(axis >= 0 && axis < rank && begin >= 0 && size >= 0 && begin + size <= shape[at(axis)],
                 "a slice lies inside " + describe());
    Tensor result = *this;
    result.shape[at(axis)] = size;
    if (data != nullptr) result.data = data + begin * strides[at(axis)] * size_of(dtype);
    return result;
}

Tensor Tensor::reshape(std::initializer_list<std::int64_t> dimensions) const {
    MFSDP_ASSERT(is_dense(), "only dense memory is reshaped, got " + describe());
    const Tensor result = dense(data, dtype, dimensions);
    MFSDP_ASSERT(result.count() == count(), describe() + " reshaped to " + result.describe());
    return result;
}

Tensor Tensor::split(int axis, std::int64_t outer, std::int64_t inner) const {
    MFSDP_ASSERT(rank < kMaxRank && axis >= 0 && axis < rank && outer * inner == shape[at(axis)],
                 "a dimension of " + describe() + " splits into outer x inner");
    Tensor result = *this;
    ++result.rank;
    for (int i = result.rank - 1; i > axis + 1; --i) {
        result.shape[at(i)] = shape[at(i - 1)];
        result.strides[at(i)] = strides[at(i - 1)];
    }
    result.shape[at(axis)] = outer;
    result.strides[at(axis)] = strides[at(axis)] * inner;
    result.shape[at(axis + 1)] = inner;
    result.strides[at(axis + 1)] = strides[at(axis)];
    return result;
}

std::string Tensor::describe() const {
    std::string text(name(dtype));
    text += " [";
    for (int axis = 0; axis < rank; ++axis) {
        if (axis > 0) text += ", ";
        text += std::to_string(shape[at(axis)]);
    }
    return text + "]";
}

bool same_shape(const Tensor& a, const Tensor& b) {
    if (a.rank != b.rank) return false;
    for (int axis = 0; axis < a.rank; ++axis) {
        if (a.shape[at(axis)] != b.shape[at(axis)]) return false;
    }
    return true;
}

}  // namespace mfsdp::device
