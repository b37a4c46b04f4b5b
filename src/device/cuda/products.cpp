#include "device/cuda/products.h"

#include "mfsdp/base/error.h"

#include "device/cuda/error.h"

#include <algorithm>
#include <string>

namespace mfsdp::device::cuda {

namespace {

constexpr std::uint64_t kWorkspaceBytes = std::uint64_t{32} << 20U;
constexpr std::int64_t kLargestAlignment = 16;

cudaDataType type_of(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return CUDA_R_32F;
        case DType::bfloat16:
            return CUDA_R_16BF;
        case DType::float16:
            return CUDA_R_16F;
        default:
            throw InternalError("matmul: products have no type " + std::string(name(dtype)));
    }
}

/// Columns of the row-major matrices as they are stored.
std::int64_t columns_of_a(const ProductShape& shape) { return shape.transpose_a ? shape.m : shape.k; }
std::int64_t columns_of_b(const ProductShape& shape) { return shape.transpose_b ? shape.k : shape.n; }

ProductLayout dense_layout(const ProductShape& shape) {
    return {.row_stride_a = columns_of_a(shape),
            .row_stride_b = columns_of_b(shape),
            .row_stride_out = shape.n,
            .row_stride_gelu = shape.gelu ? shape.n : 0};
}

/// The library's descriptions of a product, on the stack. It counts in columns: its matrices are ours transposed, so
/// that its A is our b, its B our a, and out^T = op(b)^T op(a)^T. Where there is GELU, its result D is our gelu, and
/// our out its auxiliary matrix, of D's type.
struct Descriptions {
    cublasLtMatmulDescOpaque_t product{};
    cublasLtMatrixLayoutOpaque_t a{}, b{}, result{};

    Descriptions(const ProductShape& shape, const ProductLayout& layout, const void* bias, const void* out) {
        MFSDP_CUDA(cublasLtMatmulDescInit(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        set(CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
        if (shape.bias || shape.gelu) set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(shape));
        if (shape.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
        if (shape.gelu) {
            set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, out);
            set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, layout.row_stride_out);
        }
        const std::int64_t rows_of_a = shape.transpose_a ? shape.k : shape.m;
        const std::int64_t rows_of_b = shape.transpose_b ? shape.n : shape.k;
        describe(a, type_of(shape.factors), rows_of_a, columns_of_a(shape), layout.row_stride_a);
        describe(b, type_of(shape.factors), rows_of_b, columns_of_b(shape), layout.row_stride_b);
        describe(result, type_of(shape.out), shape.m, shape.n,
                 shape.gelu ? layout.row_stride_gelu : layout.row_stride_out);
        if (layout.batch == 1) return;
        set_batch(a, layout.batch, layout.batch_stride_a);
        set_batch(b, layout.batch, layout.batch_stride_b);
        set_batch(result, layout.batch, layout.batch_stride_out);
    }

  private:
    static cublasLtEpilogue_t epilogue_of(const ProductShape& shape) {
        if (!shape.gelu) return CUBLASLT_EPILOGUE_BIAS;
        return shape.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    }
    template <class T>
    void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
        MFSDP_CUDA(cublasLtMatmulDescSetAttribute(&product, attribute, &value, sizeof value));
    }
    static void describe(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType type, std::int64_t rows,
                         std::int64_t columns, std::int64_t row_stride) {
        MFSDP_CUDA(cublasLtMatrixLayoutInit(&layout, type, static_cast<std::uint64_t>(columns),
                                            static_cast<std::uint64_t>(rows), row_stride));
    }
    static void set_batch(cublasLtMatrixLayoutOpaque_t& layout, std::int64_t batch, std::int64_t stride) {
        const auto count = static_cast<std::int32_t>(batch);
        MFSDP_CUDA(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
        MFSDP_CUDA(cublasLtMatrixLayoutSetAttribute(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                    sizeof stride));
    }
};

/// Heuristics look at an address for its alignment alone; it must be the same for every bias and every out.
const void* const kAlignedAddress = reinterpret_cast<const void*>(kLargestAlignment);

class Preference {
  public:
    Preference(const ProductShape& shape, bool deterministic) {
        MFSDP_CUDA(cublasLtMatmulPreferenceInit(&opaque_));
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
        // Parts of a sum are added in float32, in a step of their own, or there are no parts.
        const std::uint32_t reductions = deterministic
                                             ? CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                             : CUBLASLT_REDUCTION_SCHEME_MASK;
        set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
        const auto out = static_cast<std::uint32_t>(product_alignment(shape.n, shape.out));
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            static_cast<std::uint32_t>(product_alignment(columns_of_b(shape), shape.factors)));
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            static_cast<std::uint32_t>(product_alignment(columns_of_a(shape), shape.factors)));
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out);
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out);
    }
    [[nodiscard]] cublasLtMatmulPreference_t get() { return &opaque_; }

  private:
    template <class T>
    void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
        MFSDP_CUDA(cublasLtMatmulPreferenceSetAttribute(&opaque_, attribute, &value, sizeof value));
    }
    cublasLtMatmulPreferenceOpaque_t opaque_{};
};

}  // namespace

std::int64_t product_alignment(std::int64_t columns, DType dtype) {
    const std::int64_t bytes = columns * size_of(dtype);
    return std::min(kLargestAlignment, bytes & -bytes);
}

Products::Products(bool deterministic) : deterministic_(deterministic) { MFSDP_CUDA(cublasLtCreate(&handle_)); }

Products::~Products() { MFSDP_CUDA_NOTHROW(cublasLtDestroy(handle_)); }

Products::Algorithm Products::ask_heuristics(const ProductShape& shape) {
    if (shape.gelu && shape.n % kColumnsBesideGelu != 0) return std::nullopt;
    Descriptions descriptions(shape, dense_layout(shape), kAlignedAddress, kAlignedAddress);
    Preference preference(shape, deterministic_);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, &descriptions.product, &descriptions.b, &descriptions.a, &descriptions.result, &descriptions.result,
        preference.get(), 1, &result, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
    MFSDP_CUDA(status);
    if (found == 0) return std::nullopt;
    MFSDP_CUDA(result.state);
    return result.algo;
}

const Products::Algorithm& Products::algorithm(const ProductShape& shape) {
    const auto place = algorithms_.find(shape);
    if (place != algorithms_.end()) return place->second;
    return algorithms_.emplace(shape, ask_heuristics(shape)).first->second;
}

bool Products::supports(const ProductShape& shape) {
    const std::lock_guard lock(mutex_);
    return algorithm(shape).has_value();
}

Products::Plan Products::make_plan(const ProductShape& shape, const ProductLayout& layout) {
    const Algorithm& chosen = algorithm(shape);
    MFSDP_ASSERT(chosen.has_value(), "the caller has asked whether the shape is supported");
    Plan plan{.algorithm = *chosen};
    const auto check = [&](const ProductLayout& checked) {
        Descriptions descriptions(shape, checked, kAlignedAddress, kAlignedAddress);
        cublasLtMatmulHeuristicResult_t result{};
        const cublasStatus_t status =
            cublasLtMatmulAlgoCheck(handle_, &descriptions.product, &descriptions.b, &descriptions.a,
                                    &descriptions.result, &descriptions.result, &plan.algorithm, &result);
        plan.workspace_bytes = static_cast<std::int64_t>(result.workspaceSize);
        if (status == CUBLAS_STATUS_SUCCESS && result.workspaceSize > kWorkspaceBytes)
            return CUBLAS_STATUS_NOT_SUPPORTED;
        return status;
    };
    cublasStatus_t status = check(layout);
    if (status != CUBLAS_STATUS_SUCCESS && layout.batch > 1) {
        plan.one_by_one = true;
        ProductLayout single = layout;
        single.batch = 1;
        status = check(single);
    }
    MFSDP_CUDA(status);
    return plan;
}

const Products::Plan& Products::plan(const ProductShape& shape, const ProductLayout& layout) {
    const std::lock_guard lock(mutex_);
    const Key key{shape, layout};
    const auto place = plans_.find(key);
    if (place != plans_.end()) return place->second;
    return plans_.emplace(key, make_plan(shape, layout)).first->second;
}

void Products::multiply(const ProductShape& shape, const ProductLayout& layout, const Plan& plan,
                        const Addresses& addresses, float alpha, float beta, cudaStream_t stream) {
    ProductLayout issued = layout;
    if (plan.one_by_one) issued.batch = 1;
    Descriptions descriptions(shape, issued, addresses.bias, addresses.out);
    std::byte* const results = shape.gelu ? addresses.gelu : addresses.out;
    const std::int64_t calls = plan.one_by_one ? layout.batch : 1;
    for (std::int64_t i = 0; i < calls; ++i) {
        const std::byte* const a = addresses.a + i * layout.batch_stride_a * size_of(shape.factors);
        const std::byte* const b = addresses.b + i * layout.batch_stride_b * size_of(shape.factors);
        std::byte* const result = results + i * layout.batch_stride_out * size_of(shape.out);
        MFSDP_CUDA(cublasLtMatmul(handle_, &descriptions.product, &alpha, b, &descriptions.b, a, &descriptions.a, &beta,
                                  result, &descriptions.result, result, &descriptions.result, &plan.algorithm,
                                  addresses.workspace, static_cast<std::size_t>(plan.workspace_bytes), stream));
    }
}

}  // namespace mfsdp::device::cuda
