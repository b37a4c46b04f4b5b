#pragma once

#include "mfsdp/comm/communicator.h"
#include "mfsdp/device/device.h"

#include <cstdint>
#include <string>

namespace mfsdp::runtime {

/// Where figures were measured and with what: a figure without it says little.
struct BenchEnvironment {
    std::string program{};    ///< "mfsdp-bench 0.1.0 (git 5c0cd26a1b2c)"
    std::string compiler{};   ///< "gcc 12.2.0"
    std::string libraries{};  ///< "oneDNN 2.6.0; Open MPI v4.1.4"
    std::string host{};
    std::string processor{};  ///< model name
    std::int64_t cores = 0;   ///< hardware threads of the machine
    std::string device{};     ///< Device::description()
    int ranks = 1;
    int nodes = 1;
    int threads = 1;  ///< compute threads per rank
};

/// Describes this machine and job; `program` is the line of --version.
[[nodiscard]] BenchEnvironment describe_environment(const std::string& program, const comm::Communicator& communicator,
                                                    const device::Device& device, int threads);

}  // namespace mfsdp::runtime
