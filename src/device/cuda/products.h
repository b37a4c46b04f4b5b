#pragma once

#include "mfsdp/device/dtype.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include <cublasLt.h>
#include <cuda_runtime.h>

namespace mfsdp::device::cuda {

/// What decides how a product out [m, n] = op(a) [m, k] op(b) [k, n] is computed, and with it every bit of the result.
struct ProductShape {
    std::int64_t m = 0, n = 0, k = 0;
    bool transpose_a = false, transpose_b = false;
    bool bias = false;  ///< of the type of out
    bool gelu = false;  ///< of out, into a matrix of its type
    DType factors = DType::float32, out = DType::float32;
    auto operator<=>(const ProductShape&) const = default;  // NOLINT(modernize-use-nullptr): there is none
};

/// How matrices lie in memory, in elements: they are row-major.
struct ProductLayout {
    std::int64_t row_stride_a = 0, row_stride_b = 0, row_stride_out = 0;
    std::int64_t row_stride_gelu = 0;  ///< where the shape has it; there are no batches then
    std::int64_t batch = 1;
    std::int64_t batch_stride_a = 0, batch_stride_b = 0, batch_stride_out = 0;
    auto operator<=>(const ProductLayout&) const = default;  // NOLINT(modernize-use-nullptr): there is none
};

/// Largest power of two up to 16 that divides the bytes of a dense row: rows and matrices of a product begin on
/// multiples of it, and the addresses of a and b and out and gelu and bias too.
[[nodiscard]] std::int64_t product_alignment(std::int64_t columns, DType dtype);

/// Where a product has GELU, rows of out begin on multiples of this many elements.
inline constexpr std::int64_t kColumnsBesideGelu = 8;

/// Matrix products by cuBLASLt.
///
/// The algorithm is what the library's heuristics give first for one dense product of the shape, within a fixed
/// workspace, and is then used for every layout and every batch of that shape: the bits of a result depend neither on
/// where the matrices lie nor on how many are multiplied at once. An algorithm that cannot take a batch takes its
/// products one by one.
class Products {
  public:
    struct Plan {
        cublasLtMatmulAlgo_t algorithm{};
        std::int64_t workspace_bytes = 0;
        bool one_by_one = false;
    };
    struct Addresses {
        const std::byte* a = nullptr;
        const std::byte* b = nullptr;
        std::byte* out = nullptr;
        std::byte* gelu = nullptr;
        const std::byte* bias = nullptr;
        std::byte* workspace = nullptr;  ///< of Plan::workspace_bytes
    };

    explicit Products(bool deterministic);
    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;
    ~Products();

    /// Whether the library computes such a product. The answer and the plan are kept.
    [[nodiscard]] bool supports(const ProductShape& shape);
    /// The plan of a shape that is supported; the reference stays valid.
    [[nodiscard]] const Plan& plan(const ProductShape& shape, const ProductLayout& layout);
    /// out = alpha op(a) op(b) + beta out + bias, on `stream`; where the shape has GELU, beta is 0.
    void multiply(const ProductShape& shape, const ProductLayout& layout, const Plan& plan, const Addresses& addresses,
                  float alpha, float beta, cudaStream_t stream);

  private:
    using Algorithm = std::optional<cublasLtMatmulAlgo_t>;  ///< none: the library has no such product
    struct Key {
        ProductShape shape;
        ProductLayout layout;
        auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): there is none
    };

    [[nodiscard]] Algorithm ask_heuristics(const ProductShape& shape);
    [[nodiscard]] const Algorithm& algorithm(const ProductShape& shape);
    [[nodiscard]] Plan make_plan(const ProductShape& shape, const ProductLayout& layout);

    bool deterministic_;
    cublasLtHandle_t handle_ = nullptr;
    std::mutex mutex_;
    std::map<ProductShape, Algorithm> algorithms_;
    std::map<Key, Plan> plans_;
};

}  // namespace mfsdp::device::cuda
