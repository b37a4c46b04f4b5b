#include "mfsdp/runtime/bench/environment.h"

#include "mfsdp/base/host_name.h"
#include "mfsdp/comm/library_version.h"
#include "mfsdp/device/library_version.h"

#include <algorithm>
#include <fstream>
#include <thread>

namespace mfsdp::runtime {

namespace {

/// What Linux calls the processor; "unknown" where it does not say.
std::string processor_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const auto colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown";
}

std::string compiler_name() {
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown";
#endif
}

}  // namespace

BenchEnvironment describe_environment(const std::string& program, const comm::Communicator& communicator,
                                      const device::Device& device, int threads) {
    const std::vector<int> nodes = communicator.node_of_rank();
    BenchEnvironment environment;
    environment.program = program;
    environment.compiler = compiler_name();
    environment.libraries = device::library_version();
    if (const std::string transport = comm::library_version(); !transport.empty()) {
        environment.libraries.append(environment.libraries.empty() ? "" : "; ").append(transport);
    }
    environment.host = base::host_name();
    environment.processor = processor_name();
    environment.cores = std::max(1U, std::thread::hardware_concurrency());
    environment.device = device.description();
    environment.ranks = communicator.size();
    environment.nodes = 1 + *std::max_element(nodes.begin(), nodes.end());
    environment.threads = threads;
    return environment;
}

}  // namespace mfsdp::runtime
