#pragma once

#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>

#include <sys/wait.h>

namespace mfsdp::test {

/// How a command ended.
struct ProcessResult {
    int exit_code = -1;  ///< 128 + signal if a signal ended it
    std::string output;  ///< stdout and stderr
    double seconds = 0.0;
};

/// Runs a shell command to its end, with a limit after which it is killed (exit code 137).
inline ProcessResult run_command(const std::string& command, int limit_seconds = 120) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string limited =
        "timeout -k 5 " + std::to_string(limit_seconds) + " sh -c '" + command + "' 2>&1 </dev/null";
    FILE* const pipe = ::popen(limited.c_str(), "r");
    if (pipe == nullptr) throw std::runtime_error("cannot start: " + command);
    ProcessResult result;
    std::array<char, 4096> buffer{};
    while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe))
        result.output.append(buffer.data(), count);
    const int status = ::pclose(pipe);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result;
}

/// `mpirun -np N <program> <arguments>` as this machine needs it: as root, more ranks than cores.
inline std::string under_mpirun(int ranks, const std::string& command) {
    return "env OMPI_MCA_mpi_yield_when_idle=1 mpirun --allow-run-as-root --oversubscribe --bind-to none -np " +
           std::to_string(ranks) + " " + command;
}

inline std::int64_t count_of(const std::string& text, const std::string& part) {
    std::int64_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
    return count;
}

}  // namespace mfsdp::test
