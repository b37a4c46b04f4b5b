#pragma once

#include "mfsdp/device/dtype.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace mfsdp::device {

/// A view of device memory: address, element type, shape and strides (in elements). It owns nothing and is a plain
/// value. The address is a *device* address: only operations, transports and explicit copies may follow it.
struct Tensor {
    static constexpr int kMaxRank = 4;

    std::byte* data = nullptr;
    DType dtype = DType::float32;
    int rank = 0;
    std::array<std::int64_t, kMaxRank> shape{};
    std::array<std::int64_t, kMaxRank> strides{};

    /// A dense row-major view of `dimensions` at `address`.
    [[nodiscard]] static Tensor dense(std::byte* address, DType dtype, std::initializer_list<std::int64_t> dimensions);

    [[nodiscard]] bool empty() const { return data == nullptr || count() == 0; }
    [[nodiscard]] bool defined() const { return data != nullptr; }
    /// Number of elements; 1 for rank 0.
    [[nodiscard]] std::int64_t count() const;
    [[nodiscard]] std::int64_t bytes() const { return count() * size_of(dtype); }
    [[nodiscard]] bool is_dense() const;

    /// Rows and columns of the view taken as a matrix: the last dimension is the columns, all before it the rows.
    /// A 1-D tensor is one row.
    [[nodiscard]] std::int64_t rows() const;
    [[nodiscard]] std::int64_t columns() const { return rank == 0 ? 1 : shape[static_cast<std::size_t>(rank - 1)]; }

    /// [begin, begin + size) along dimension `axis`, the same memory.
    [[nodiscard]] Tensor slice(int axis, std::int64_t begin, std::int64_t size) const;
    /// The same dense memory with another shape of equal count; InternalError if not dense.
    [[nodiscard]] Tensor reshape(std::initializer_list<std::int64_t> dimensions) const;
    /// Splits dimension `axis` of size outer*inner into two dimensions [outer, inner]; works on strided views.
    [[nodiscard]] Tensor split(int axis, std::int64_t outer, std::int64_t inner) const;
    /// "float32 [2, 3]", for messages.
    [[nodiscard]] std::string describe() const;
};

[[nodiscard]] bool same_shape(const Tensor& a, const Tensor& b);

}  // namespace mfsdp::device
