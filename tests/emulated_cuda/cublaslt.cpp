// The part of cuBLASLt that the backend calls: products of column-major matrices, one algorithm for most shapes, and
// for long sums one that needs a workspace and refuses batches, as the library's algorithms with split sums may. GELU
// beside the product is for bfloat16, and there is no algorithm with it for long sums.

#include "device/cpu/product.h"
#include "emulated_cuda/kernel.h"
#include "emulated_cuda/runtime.h"

#include <cmath>
#include <cstring>
#include <new>
#include <numbers>
#include <vector>

#include <cublasLt.h>

namespace {

using namespace emulated_cuda;
using mfsdp::device::BFloat16;
using mfsdp::device::Float16;

constexpr const char* kHandle = "cublasLtHandle_t";
constexpr std::int64_t kLongSum = 1024;
constexpr std::int64_t kAuxiliaryMultiple = 8;  // of leading dimensions, in elements
constexpr std::uintptr_t kAuxiliaryAlignment = 16;

// What the opaque structures hold.
struct Layout {
    cudaDataType type;
    std::int32_t batch;
    std::uint64_t rows, columns;
    std::int64_t leading, batch_stride;
};
struct Operation {
    cublasOperation_t transpose_a, transpose_b;
    cublasLtEpilogue_t epilogue;
    const void* bias;
    void* auxiliary;
    std::int64_t auxiliary_leading;

    [[nodiscard]] bool has_bias() const {
        return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    }
    [[nodiscard]] bool has_gelu() const {
        return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    }
};
struct Preference {
    std::uint64_t workspace_bytes;
    std::uint32_t reduction_mask;
    std::uint32_t alignment[4];  // of A, B, C, D
};
struct Algorithm {
    std::uint64_t magic;
    std::uint64_t workspace_bytes;
    std::uint32_t alignment[4];
    bool splits_sum;
};
constexpr std::uint64_t kMagic = 0x6C745F616C676F31U;

template <class Inside, class Opaque>
Inside& inside(Opaque* opaque) {
    static_assert(sizeof(Inside) <= sizeof(Opaque) && std::is_trivially_copyable_v<Inside>);
    return *std::launder(reinterpret_cast<Inside*>(opaque));
}
template <class Inside, class Opaque>
const Inside& inside(const Opaque* opaque) {
    static_assert(sizeof(Inside) <= sizeof(Opaque) && std::is_trivially_copyable_v<Inside>);
    return *std::launder(reinterpret_cast<const Inside*>(opaque));
}

template <class T>
void set(T& target, const void* value, std::size_t bytes, const char* call) {
    if (bytes != sizeof(T)) fail("%s: the value has %zu bytes, wanted %zu", call, bytes, sizeof(T));
    std::memcpy(&target, value, sizeof(T));
}

std::size_t size_of(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

bool is_supported(const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
    if (a.type != b.type || c.type != d.type) return false;
    if (a.type == CUDA_R_32F) return d.type == CUDA_R_32F;
    if (a.type == CUDA_R_16BF || a.type == CUDA_R_16F) return d.type == a.type || d.type == CUDA_R_32F;
    return false;
}

/// Fails unless the auxiliary matrix, GELU's argument, is there exactly with GELU, and lies as the library wants it.
void require_auxiliary(const Operation& operation, const Layout& d) {
    if (!operation.has_gelu()) {
        if (operation.auxiliary != nullptr) fail("cublasLtMatmul: an auxiliary matrix, but no epilogue with one");
        return;
    }
    if (d.type != CUDA_R_16BF || d.batch != 1) fail("cublasLtMatmul: GELU is emulated for one bfloat16 matrix");
    if (operation.auxiliary_leading % kAuxiliaryMultiple != 0 ||
        operation.auxiliary_leading < static_cast<std::int64_t>(d.rows)) {
        fail(
            "cublasLtMatmul: the auxiliary matrix has a leading dimension of %lld for %llu rows, wanted a multiple of "
            "8",
            static_cast<long long>(operation.auxiliary_leading), static_cast<unsigned long long>(d.rows));
    }
    if (operation.auxiliary == nullptr ||
        reinterpret_cast<std::uintptr_t>(operation.auxiliary) % kAuxiliaryAlignment != 0) {
        fail("cublasLtMatmul: the auxiliary matrix does not begin on a multiple of 16 bytes");
    }
}

struct Sides {
    std::int64_t m, n, k;
};

/// Fails unless the four matrices fit together.
Sides sides(const Operation& operation, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
    const auto rows = [](const Layout& layout, cublasOperation_t transpose) {
        return static_cast<std::int64_t>(transpose == CUBLAS_OP_N ? layout.rows : layout.columns);
    };
    const auto columns = [](const Layout& layout, cublasOperation_t transpose) {
        return static_cast<std::int64_t>(transpose == CUBLAS_OP_N ? layout.columns : layout.rows);
    };
    const Sides result{rows(a, operation.transpose_a), columns(b, operation.transpose_b),
                       columns(a, operation.transpose_a)};
    const auto fits = [&](const Layout& layout) {
        return layout.rows == static_cast<std::uint64_t>(result.m) &&
               layout.columns == static_cast<std::uint64_t>(result.n) && layout.batch == a.batch;
    };
    if (rows(b, operation.transpose_b) != result.k || b.batch != a.batch || !fits(c) || !fits(d)) {
        fail("cublasLtMatmul: the matrices' sizes do not fit together");
    }
    for (const Layout* layout : {&a, &b, &c, &d}) {
        if (layout->leading < static_cast<std::int64_t>(layout->rows) || layout->rows == 0 || layout->columns == 0) {
            fail("cublasLtMatmul: a matrix is empty or its columns overlap");
        }
    }
    require_auxiliary(operation, d);
    return result;
}

cublasStatus_t check(const Operation& operation, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
                     const Algorithm& algorithm) {
    if (algorithm.magic != kMagic) return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_supported(a, b, c, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    const Sides product = sides(operation, a, b, c, d);
    if (operation.has_gelu() && product.k >= kLongSum) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (algorithm.splits_sum && a.batch > 1) return CUBLAS_STATUS_NOT_SUPPORTED;
    const Layout* const layouts[] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; ++i) {
        const std::size_t size = size_of(layouts[i]->type);
        const bool one_column = layouts[i]->columns == 1;
        if ((!one_column && layouts[i]->leading * size % algorithm.alignment[i] != 0) ||
            (layouts[i]->batch > 1 && layouts[i]->batch_stride * size % algorithm.alignment[i] != 0)) {
            return CUBLAS_STATUS_NOT_SUPPORTED;
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

/// Bytes from the first to the last element.
std::size_t extent(const Layout& layout) {
    const std::int64_t last = (layout.batch - 1) * layout.batch_stride +
                              static_cast<std::int64_t>(layout.columns - 1) * layout.leading +
                              static_cast<std::int64_t>(layout.rows);
    return static_cast<std::size_t>(last) * size_of(layout.type);
}

struct Task {
    Operation operation;
    Layout a_layout, b_layout, d_layout;
    Sides sides;
    const std::byte *a, *b;
    std::byte* d;
    float alpha, beta;
};

std::vector<float> bias_of(const Task& task) {
    std::vector<float> result;
    for (std::int64_t i = 0; i < task.sides.m; ++i) {
        switch (task.d_layout.type) {
            case CUDA_R_32F:
                result.push_back(static_cast<const float*>(task.operation.bias)[i]);
                break;
            case CUDA_R_16BF:
                result.push_back(widened(static_cast<const BFloat16*>(task.operation.bias)[i]));
                break;
            default:
                result.push_back(widened(static_cast<const Float16*>(task.operation.bias)[i]));
        }
    }
    return result;
}

float gelu(float x) {
    const double wide = static_cast<double>(x);
    const double inner = std::sqrt(2.0 / std::numbers::pi) * (wide + 0.044715 * wide * wide * wide);
    return static_cast<float>(0.5 * wide * (1.0 + std::tanh(inner)));
}

/// The product in float32, rounded into the auxiliary matrix, and GELU of what was not rounded.
template <class T>
void multiply_with_gelu(const Task& task, const mfsdp::device::cpu::Product<T>& product, const float* bias) {
    std::vector<float> wide(static_cast<std::size_t>(product.rows * product.columns));
    mfsdp::device::cpu::multiply_by_own_kernel<T, float>(product, {wide.data(), product.columns}, bias);
    auto* const before = static_cast<BFloat16*>(task.operation.auxiliary);
    auto* const after = reinterpret_cast<BFloat16*>(task.d);
    for (std::int64_t row = 0; row < product.rows; ++row) {
        for (std::int64_t column = 0; column < product.columns; ++column) {
            const float x = wide[static_cast<std::size_t>(row * product.columns + column)];
            before[row * task.operation.auxiliary_leading + column] = mfsdp::device::rounded<BFloat16>(x);
            after[row * task.d_layout.leading + column] = mfsdp::device::rounded<BFloat16>(gelu(x));
        }
    }
}

/// Column-major matrices are row-major ones transposed: D^T = op(B)^T op(A)^T.
template <class T, class To>
void multiply(const Task& task) {
    const std::vector<float> values = task.operation.has_bias() ? bias_of(task) : std::vector<float>{};
    const float* const bias = values.empty() ? nullptr : values.data();
    for (std::int64_t i = 0; i < task.a_layout.batch; ++i) {
        mfsdp::device::cpu::Product<T> product;
        product.rows = task.sides.n;
        product.columns = task.sides.m;
        product.inner = task.sides.k;
        product.a = {reinterpret_cast<const T*>(task.b) + i * task.b_layout.batch_stride, task.b_layout.leading,
                     task.operation.transpose_b == CUBLAS_OP_T};
        product.b = {reinterpret_cast<const T*>(task.a) + i * task.a_layout.batch_stride, task.a_layout.leading,
                     task.operation.transpose_a == CUBLAS_OP_T};
        product.alpha = task.alpha;
        product.beta = task.beta;
        if (task.operation.has_gelu()) return multiply_with_gelu(task, product, bias);
        mfsdp::device::cpu::multiply_by_own_kernel<T, To>(
            product, {reinterpret_cast<To*>(task.d) + i * task.d_layout.batch_stride, task.d_layout.leading}, bias);
    }
}

void run(const Task& task) {
    const auto pair = [&](cudaDataType from, cudaDataType to) {
        return task.a_layout.type == from && task.d_layout.type == to;
    };
    if (pair(CUDA_R_32F, CUDA_R_32F)) {
        multiply<float, float>(task);
    } else if (pair(CUDA_R_16BF, CUDA_R_16BF)) {
        multiply<BFloat16, BFloat16>(task);
    } else if (pair(CUDA_R_16BF, CUDA_R_32F)) {
        multiply<BFloat16, float>(task);
    } else if (pair(CUDA_R_16F, CUDA_R_16F)) {
        multiply<Float16, Float16>(task);
    } else {
        multiply<Float16, float>(task);
    }
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = static_cast<cublasLtHandle_t>(make_object(kHandle));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    destroy_object(handle, kHandle, __func__);
    return CUBLAS_STATUS_SUCCESS;
}

std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_EMULATED";
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "the requested functionality is not supported"
                                                 : "an error of the emulated library";
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, std::size_t size, cudaDataType type,
                                                 std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
    if (size != sizeof(*layout)) fail("%s: the layout has %zu bytes", __func__, size);
    inside<Layout>(layout) = {type, 1, rows, columns, leading, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
    switch (attribute) {
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
            set(inside<Layout>(layout).batch, value, bytes, __func__);
            break;
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
            set(inside<Layout>(layout).batch_stride, value, bytes, __func__);
            break;
        default:
            fail("%s: attribute %d is not emulated", __func__, static_cast<int>(attribute));
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, std::size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
    if (size != sizeof(*operation) || compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) {
        fail("%s: only sums and scales in float32 are emulated", __func__);
    }
    inside<Operation>(operation) = {CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
    Operation& target = inside<Operation>(operation);
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            set(target.transpose_a, value, bytes, __func__);
            break;
        case CUBLASLT_MATMUL_DESC_TRANSB:
            set(target.transpose_b, value, bytes, __func__);
            break;
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            set(target.epilogue, value, bytes, __func__);
            if (target.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !target.has_bias() && !target.has_gelu()) {
                fail("%s: epilogue %d is not emulated", __func__, static_cast<int>(target.epilogue));
            }
            break;
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            set(target.bias, value, bytes, __func__);
            break;
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
            set(target.auxiliary, value, bytes, __func__);
            break;
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
            set(target.auxiliary_leading, value, bytes, __func__);
            break;
        default:
            fail("%s: attribute %d is not emulated", __func__, static_cast<int>(attribute));
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, std::size_t size) {
    if (size != sizeof(*preference)) fail("%s: the preference has %zu bytes", __func__, size);
    inside<Preference>(preference) = {0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
    Preference& target = inside<Preference>(preference);
    switch (attribute) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
            set(target.workspace_bytes, value, bytes, __func__);
            break;
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
            set(target.reduction_mask, value, bytes, __func__);
            break;
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
            set(target.alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes, __func__);
            break;
        default:
            fail("%s: attribute %d is not emulated", __func__, static_cast<int>(attribute));
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
    require_object(handle, kHandle, __func__);
    if (requested != 1) fail("%s: one algorithm is emulated, %d were asked for", __func__, requested);
    const Preference& wanted = inside<Preference>(preference);
    *found = 0;
    if (!is_supported(inside<Layout>(a), inside<Layout>(b), inside<Layout>(c), inside<Layout>(d))) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const Sides size =
        sides(inside<Operation>(operation), inside<Layout>(a), inside<Layout>(b), inside<Layout>(c), inside<Layout>(d));
    if (inside<Operation>(operation).has_gelu() && size.k >= kLongSum) return CUBLAS_STATUS_SUCCESS;  // none found
    Algorithm algorithm{kMagic, 0, {}, false};
    std::memcpy(algorithm.alignment, wanted.alignment, sizeof algorithm.alignment);
    const auto split_bytes = static_cast<std::uint64_t>(2 * size.m * size.n * 4);
    if (size.k >= kLongSum && split_bytes <= wanted.workspace_bytes) {
        algorithm.workspace_bytes = split_bytes;
        algorithm.splits_sum = true;
    }
    results[0] = {};
    inside<Algorithm>(&results[0].algo) = algorithm;
    results[0].workspaceSize = algorithm.workspace_bytes;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
    require_object(handle, kHandle, __func__);
    const cublasStatus_t status = check(inside<Operation>(operation), inside<Layout>(a), inside<Layout>(b),
                                        inside<Layout>(c), inside<Layout>(d), inside<Algorithm>(algorithm));
    result->state = status;
    result->workspaceSize = inside<Algorithm>(algorithm).workspace_bytes;
    return status;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
    require_object(handle, kHandle, __func__);
    if (settings().failing_call == __func__) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (c != d || algorithm == nullptr) fail("%s: another C than D, or no algorithm, is not emulated", __func__);
    const Operation& wanted = inside<Operation>(operation);
    const Layout layouts[] = {inside<Layout>(a_layout), inside<Layout>(b_layout), inside<Layout>(c_layout),
                              inside<Layout>(d_layout)};
    const void* const addresses[] = {a, b, c, d};
    const Algorithm& chosen = inside<Algorithm>(algorithm);
    if (const auto status = check(wanted, layouts[0], layouts[1], layouts[2], layouts[3], chosen);
        status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    for (int i = 0; i < 4; ++i) {
        require_device_memory(addresses[i], extent(layouts[i]), __func__);
        if (reinterpret_cast<std::uintptr_t>(addresses[i]) % chosen.alignment[i] != 0) {
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    }
    const Sides size = sides(wanted, layouts[0], layouts[1], layouts[2], layouts[3]);
    if (wanted.has_gelu()) {
        const auto elements = static_cast<std::size_t>((size.n - 1) * wanted.auxiliary_leading + size.m);
        require_device_memory(wanted.auxiliary, elements * size_of(layouts[3].type), __func__);
        if (wanted.auxiliary == d) fail("%s: the auxiliary matrix lies where D does", __func__);
        if (*static_cast<const float*>(beta) != 0.0F) fail("%s: GELU is emulated for beta = 0", __func__);
    }
    if (wanted.has_bias()) {
        require_device_memory(wanted.bias, static_cast<std::size_t>(size.m) * size_of(layouts[3].type), __func__);
        if (reinterpret_cast<std::uintptr_t>(wanted.bias) % 16 != 0) return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (chosen.workspace_bytes > workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
    if (chosen.workspace_bytes > 0) require_device_memory(workspace, chosen.workspace_bytes, __func__);
    const Task task{wanted,
                    layouts[0],
                    layouts[1],
                    layouts[3],
                    size,
                    static_cast<const std::byte*>(a),
                    static_cast<const std::byte*>(b),
                    static_cast<std::byte*>(d),
                    *static_cast<const float*>(alpha),
                    *static_cast<const float*>(beta)};
    enqueue(stream, [task, workspace, bytes = chosen.workspace_bytes] {
        if (bytes > 0) std::memset(workspace, 0xFF, bytes);  // partial sums lie there for a while
        run(task);
    });
    return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
