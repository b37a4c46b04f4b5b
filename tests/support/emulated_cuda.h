#pragma once

// The emulated CUDA device (tests/emulated_cuda) in tests that link against nothing of it. MFSDP_EMULATED_CUDA_MODULE
// is the path of its library; it is not defined in builds without a CUDA toolkit.

#include "mfsdp/device/cuda_device.h"

#include <memory>
#include <stdexcept>
#include <string>

#include <dlfcn.h>

namespace mfsdp::test {

template <class Function>
[[nodiscard]] Function* emulated_cuda_function(const char* name) {
    void* const library = dlopen(MFSDP_EMULATED_CUDA_MODULE, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    auto* const function = reinterpret_cast<Function*>(dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(dlerror());
    return function;
}

/// Settings of tests/emulated_cuda/control.h for all that is issued from now on; those not named are the defaults.
inline void configure_emulated_cuda(const std::string& settings = "") {
    emulated_cuda_function<void(const char*)>("mfsdp_emulated_cuda_configure")(
        ("devices=1,asynchronous=0,seed=1,backwards=0,memory_bytes=1099511627776,failing_call=" +
         (settings.empty() ? "" : "," + settings))
            .c_str());
}

/// What was not released yet, in sentences.
[[nodiscard]] inline std::string emulated_cuda_leaks() {
    return emulated_cuda_function<const char*()>("mfsdp_emulated_cuda_leaks")();
}

[[nodiscard]] inline std::unique_ptr<device::Device> make_emulated_cuda_device(const std::string& settings = "") {
    configure_emulated_cuda(settings);
    return device::make_cuda_device({.module_path = MFSDP_EMULATED_CUDA_MODULE});
}

}  // namespace mfsdp::test
