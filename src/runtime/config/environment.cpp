#include "mfsdp/runtime/config/environment.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace mfsdp::runtime {

bool started_by_launcher() {
    return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr ||
           std::getenv("SLURM_STEP_NUM_TASKS") != nullptr;
}

bool launched_alone() {
    bool is_told = false;
    for (const char* const variable : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
        const char* const text = std::getenv(variable);
        if (text != nullptr && std::string_view(text) != "1") return false;
        is_told = is_told || text != nullptr;
    }
    return is_told;
}

std::int64_t slurm_tasks() {
    const char* const text = std::getenv("SLURM_STEP_NUM_TASKS");
    if (text == nullptr || std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return 0;
    return std::strtoll(text, nullptr, 10);
}

void let_mpi_yield_when_idle() { ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0); }

int resolve_threads(const TrainConfig& config, std::int64_t ranks_on_node) {
    if (config.threads.has_value()) return static_cast<int>(*config.threads);
    if (const char* const text = std::getenv("OMP_NUM_THREADS"); text != nullptr && *text != '\0') {
        // OpenMP allows a list, one number per level of nesting; there is one level here.
        const std::string_view all(text);
        const std::string_view first = all.substr(0, all.find(','));
        int threads = 0;
        const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), threads);
        if (error != std::errc() || end != first.data() + first.size() || threads < 1) {
            throw ConfigError("config: OMP_NUM_THREADS = " + std::string(all) +
                              ": must begin with a whole number >= 1");
        }
        return threads;
    }
    const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
    return static_cast<int>(std::max<std::int64_t>(1, cores / ranks_on_node));
}

LogLevel resolve_log_level(const TrainConfig& config) {
    const char* const text = std::getenv("MFSDP_LOG_LEVEL");
    if (text == nullptr || *text == '\0') return config.telemetry.log_level;
    const std::string_view level(text);
    if (level == "debug") return LogLevel::debug;
    if (level == "info") return LogLevel::info;
    if (level == "warn") return LogLevel::warn;
    if (level == "error") return LogLevel::error;
    throw ConfigError("config: MFSDP_LOG_LEVEL = " + std::string(level) + ": must be one of debug, info, warn, error");
}

}  // namespace mfsdp::runtime
