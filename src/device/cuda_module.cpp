#include "device/cuda_module.h"

#include "mfsdp/base/error.h"

#include <filesystem>
#include <vector>

#include <dlfcn.h>

namespace mfsdp::device {

namespace {

constexpr const char* kLibrary = "libmfsdp_cuda.so";
constexpr const char* kEntry = "mfsdp_cuda_module";

/// Where the library of this program's own build or installation lies.
std::filesystem::path find_library() {
    const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const std::vector<std::filesystem::path> candidates{
        folder / kLibrary, folder / ".." / MFSDP_LIBRARY_FOLDER / kLibrary, folder / ".." / "lib" / kLibrary};
    for (const auto& candidate : candidates) {
        if (std::filesystem::exists(candidate)) return candidate.lexically_normal();
    }
    throw ConfigError("device: there is no CUDA backend: " + std::string(kLibrary) + " lies neither in " +
                      folder.string() + " nor in " + candidates[1].lexically_normal().parent_path().string() +
                      "; build with nvcc installed, or run on the CPU");
}

}  // namespace

const CudaModule& cuda_module(const std::string& path) {
    const std::string file = path.empty() ? find_library().string() : path;
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // counts, and is never closed
    if (library == nullptr) {
        const char* const reason = dlerror();
        throw ConfigError("device: the CUDA backend cannot be opened: " + std::string(reason == nullptr ? "" : reason));
    }
    auto* const entry = reinterpret_cast<MfsdpCudaModule*>(dlsym(library, kEntry));
    const CudaModule* const module = entry == nullptr ? nullptr : entry(kCudaModuleVersion);
    if (module == nullptr) {
        throw ConfigError("device: " + file + " is no CUDA backend of this build; build and install both together");
    }
    return *module;
}

int cuda_device_count(const std::string& module_path) {
    std::string reason;
    const int count = cuda_module(module_path).device_count(reason);
    if (count == 0) throw ConfigError("device: no GPU can be used: " + reason);
    return count;
}

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options) {
    const int count = cuda_device_count(options.module_path);
    if (options.ordinal < 0 || options.ordinal >= count) {
        throw ConfigError("device: there is no GPU " + std::to_string(options.ordinal) + ", this process sees " +
                          std::to_string(count) + " (numbered from 0)");
    }
    return cuda_module(options.module_path).make_device(options);
}

}  // namespace mfsdp::device
