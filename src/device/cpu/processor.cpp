#include "device/cpu/processor.h"

#include "mfsdp/base/error.h"

#include "device/cpu/lapack.h"
#include "device/cpu/product.h"

#ifdef MFSDP_WITH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

namespace mfsdp::device::cpu {

namespace {

#if defined(__AVX512F__)
constexpr const char* kCompiledFor = "avx512";
#elif defined(__AVX2__)
constexpr const char* kCompiledFor = "avx2";
#elif defined(__x86_64__)
constexpr const char* kCompiledFor = "x86-64";
#elif defined(__aarch64__)
constexpr const char* kCompiledFor = "aarch64";
#else
constexpr const char* kCompiledFor = "generic";
#endif

[[maybe_unused]] void require(bool present, const char* instructions) {
    if (present) return;
    throw ConfigError(std::string("device: this program was compiled for ") + instructions +
                      " instructions, which this processor lacks; build it with -DMFSDP_CPU_ARCH=x86-64.");
}

/// Whether a library tuned for this processor has wider vectors to work with than our own kernel's 256 bits.
bool has_wider_vectors() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") != 0;
#else
    return true;
#endif
}

#ifdef MFSDP_WITH_ONEDNN
std::string describe_onednn() {
    const dnnl_version_t* const version = dnnl_version();
    std::string text = "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
                       std::to_string(version->patch);
    switch (const dnnl_cpu_isa_t instructions = dnnl_get_effective_cpu_isa()) {
        case dnnl_cpu_isa_sse41:
            return text + " sse41";
        case dnnl_cpu_isa_avx:
            return text + " avx";
        case dnnl_cpu_isa_avx2:
            return text + " avx2";
        case dnnl_cpu_isa_avx512_core:
            return text + " avx512_core";
        default:  // newer sets have names that depend on the library's version; their numbers do not change
            return text + " instructions " + std::to_string(static_cast<int>(instructions));
    }
}
#else
std::string describe_onednn() { return "oneDNN"; }
#endif

}  // namespace

void require_compiled_instructions() {
#if defined(__x86_64__)
    __builtin_cpu_init();
#ifdef __AVX2__
    require(__builtin_cpu_supports("avx2") != 0, "AVX2");
#endif
#ifdef __FMA__
    require(__builtin_cpu_supports("fma") != 0, "FMA");
#endif
#ifdef __AVX512F__
    require(__builtin_cpu_supports("avx512f") != 0, "AVX-512");
#endif
#endif
}

ProductKernel choose_products(ProductKernel wanted) {
    if (wanted == ProductKernel::automatic) {
        return has_onednn() && has_wider_vectors() ? ProductKernel::onednn : ProductKernel::own;
    }
    if (wanted == ProductKernel::onednn && !has_onednn()) {
        throw ConfigError("device: products by oneDNN are wanted, but this program was built without it.");
    }
    return wanted;
}

LibraryProducts products_by(ProductKernel kernel) {
    LibraryProducts products{};
    if (kernel != ProductKernel::onednn) return products;
    std::get<Multiply<float>*>(products) = &multiply_by_onednn;
    if (has_onednn_bfloat16()) std::get<Multiply<BFloat16>*>(products) = &multiply_by_onednn_primitive<BFloat16>;
    return products;
}

std::string describe_arithmetic(ProductKernel products) {
    std::string text(kCompiledFor);
    if (products == ProductKernel::onednn) {
        text.append(" ").append(describe_onednn());
        if (has_onednn_bfloat16()) text += " and bfloat16";
    } else {
        text += " own products";
    }
    return has_lapack() ? text.append(", ").append(describe_lapack()) : text;
}

}  // namespace mfsdp::device::cpu
