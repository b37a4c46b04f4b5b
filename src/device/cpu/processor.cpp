#include "device/cpu/processor.h"

#include "mfsdp/base/error.h"

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

#ifdef MFSDP_WITH_ONEDNN
std::string describe_library() {
    const dnnl_version_t* const version = dnnl_version();
    std::string text = " oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
                       std::to_string(version->patch);
    // The bits of enum values are the library's own account of the instruction sets, cumulative from SSE4.1 up.
    switch (static_cast<int>(dnnl_get_effective_cpu_isa())) {
        case dnnl_cpu_isa_sse41:
            return text + " sse41";
        case dnnl_cpu_isa_avx:
            return text + " avx";
        case dnnl_cpu_isa_avx2:
            return text + " avx2";
        default:
            return text + " isa " + std::to_string(static_cast<int>(dnnl_get_effective_cpu_isa()));
    }
}
#else
std::string describe_library() { return " plain products"; }
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

std::string describe_arithmetic() { return kCompiledFor + describe_library(); }

}  // namespace mfsdp::device::cpu
