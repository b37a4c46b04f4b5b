#include "mfsdp/base/error.h"

#include "device/cpu/float8.h"
#include "device/cpu/product.h"
#include "device/cpu/scratch.h"

#include <string>
#include <type_traits>

#ifdef MFSDP_WITH_ONEDNN
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace mfsdp::device::cpu {

#ifdef MFSDP_WITH_ONEDNN

static_assert(DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP || DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_SEQ,
              "this oneDNN has threads of its own that cannot be held back; configure with -DMFSDP_WITH_ONEDNN=OFF");

namespace {

template <class T>
[[noreturn]] void refuse(const Product<T>& product, const std::string& why) {
    throw DeviceError("device: oneDNN refused a product of [" + std::to_string(product.rows) + ", " +
                      std::to_string(product.inner) + "] and [" + std::to_string(product.inner) + ", " +
                      std::to_string(product.columns) + "]: " + why);
}

template <class T>
dnnl::memory::desc describe(const MatrixOperand<T>& operand, std::int64_t rows, std::int64_t columns) {
    constexpr auto kType = std::is_same_v<T, BFloat16> ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
    const dnnl::memory::dims strides{operand.transposed ? 1 : operand.stride, operand.transposed ? operand.stride : 1};
    return dnnl::memory::desc({rows, columns}, kType, strides);
}

/// The product a b alone. The interface of the library changed with its version 3.
template <class T>
dnnl::matmul::primitive_desc plan(const dnnl::engine& engine, const Product<T>& product, std::int64_t stride) {
    const auto a = describe(product.a, product.rows, product.inner);
    const auto b = describe(product.b, product.inner, product.columns);
    const auto c = describe(MatrixOperand<float>{nullptr, stride, false}, product.rows, product.columns);
#if DNNL_VERSION_MAJOR >= 3
    return {engine, a, b, c};
#else
    return {dnnl::matmul::desc(a, b, c), engine};
#endif
}

const dnnl::engine& processor() {
    static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    return engine;
}

/// result = a b; the library keeps what it made for a shape and finds it again.
template <class T>
void overwrite(const Result<float>& result, const Product<T>& product) {
    const auto planned = plan(processor(), product, result.stride);
    const auto memory = [](const dnnl::memory::desc& description, const void* data) {
        return dnnl::memory(description, processor(), const_cast<void*>(data));
    };
    dnnl::stream stream(processor());
    dnnl::matmul(planned).execute(stream, {{DNNL_ARG_SRC, memory(planned.src_desc(), product.a.data)},
                                           {DNNL_ARG_WEIGHTS, memory(planned.weights_desc(), product.b.data)},
                                           {DNNL_ARG_DST, memory(planned.dst_desc(), result.data)}});
    stream.wait();
}

struct SumsUse {};

}  // namespace

bool has_onednn() { return true; }

void multiply_by_onednn(const Product<float>& product, const Result<float>& result) {
    const auto letter = [](const MatrixOperand<float>& operand) { return operand.transposed ? 'T' : 'N'; };
    const dnnl_status_t status = dnnl_sgemm(letter(product.a), letter(product.b), product.rows, product.columns,
                                            product.inner, product.alpha, product.a.data, product.a.stride,
                                            product.b.data, product.b.stride, product.beta, result.data, result.stride);
    if (status != dnnl_success) refuse(product, "status " + std::to_string(status));
}

template <class T>
void multiply_by_onednn_primitive(const Product<T>& product, const Result<float>& result) {
    const bool plain = product.alpha == 1.0F && product.beta == 0.0F;
    const Result<float> sums =
        plain ? result : Result<float>{thread_scratch<float, SumsUse>(product.rows * product.columns), product.columns};
    try {
        overwrite(sums, product);
    } catch (const dnnl::error& error) {
        refuse(product, error.what());
    }
    if (plain) return;
    for (std::int64_t row = 0; row < product.rows; ++row) {
        float* const target = result.data + row * result.stride;
        const float* const sum = sums.data + row * sums.stride;
        for_vectors(product.columns, [&](std::int64_t i, std::int64_t lanes) {
            const Float8 before =
                product.beta == 0.0F ? Float8{} : broadcast(product.beta) * load_lanes(target + i, lanes);
            store_lanes(target + i, fma(broadcast(product.alpha), load_lanes(sum + i, lanes), before), lanes);
        });
    }
}

bool has_onednn_bfloat16() {
#if defined(__x86_64__)
    static const bool has = [] {
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx512bf16") == 0) return false;
        Product<BFloat16> any;
        any.rows = any.columns = any.inner = any.a.stride = any.b.stride = 64;
        try {
            plan(processor(), any, 64);
            return true;
        } catch (const dnnl::error&) {  // a library that was built, or told, to do without
            return false;
        }
    }();
    return has;
#else
    return false;
#endif
}

#else

bool has_onednn() { return false; }
bool has_onednn_bfloat16() { return false; }

void multiply_by_onednn(const Product<float>& /*product*/, const Result<float>& /*result*/) {
    MFSDP_ASSERT(has_onednn(), "the device offers oneDNN's products only where this program has them");
}

template <class T>
void multiply_by_onednn_primitive(const Product<T>& /*product*/, const Result<float>& /*result*/) {
    MFSDP_ASSERT(has_onednn(), "the device offers oneDNN's products only where this program has them");
}

#endif

template void multiply_by_onednn_primitive(const Product<float>& product, const Result<float>& result);
template void multiply_by_onednn_primitive(const Product<BFloat16>& product, const Result<float>& result);

}  // namespace mfsdp::device::cpu
