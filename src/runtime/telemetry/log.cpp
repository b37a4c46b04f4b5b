#include "mfsdp/runtime/telemetry/log.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <vector>

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

namespace mfsdp::runtime {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
    switch (level) {
        case LogLevel::debug:
            return spdlog::level::debug;
        case LogLevel::info:
            return spdlog::level::info;
        case LogLevel::warn:
            return spdlog::level::warn;
        case LogLevel::error:
            return spdlog::level::err;
    }
    raise_internal_error("level", __FILE__, __LINE__, "every log level has its counterpart");
}

spdlog::sink_ptr open_file_sink(const LogOptions& options) {
    try {
        auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file_path);
        sink->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z rank " + std::to_string(options.rank) + " %l: %v");
        return sink;
    } catch (const spdlog::spdlog_ex& error) {
        throw ConfigError("config: " + options.file_path + ": the log cannot be opened: " + error.what());
    }
}

}  // namespace

struct Log::Sinks {
    spdlog::logger logger{"mfsdp"};

    void log(spdlog::level::level_enum level, std::string_view message) {
        while (!message.empty()) {
            const std::size_t end = std::min(message.find('\n'), message.size());
            logger.log(level, spdlog::string_view_t(message.substr(0, end)));
            message.remove_prefix(std::min(end + 1, message.size()));
        }
    }
};

Log::Log(const LogOptions& options) : sinks_(std::make_unique<Sinks>()) {
    spdlog::logger& logger = sinks_->logger;
    if (options.console) {
        auto console = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
        console->set_pattern(std::string(options.clears_line ? "\r\x1b[K" : "") + "%H:%M:%S %^%l%$: %v");
        logger.sinks().push_back(std::move(console));
    }
    if (!options.file_path.empty()) {
        const spdlog::sink_ptr file = open_file_sink(options);
        logger.sinks().push_back(file);
        logger.set_error_handler([file, path = options.file_path](const std::string& reason) {
            // The level closes the sink: sinks may not be removed while the logger walks over them.
            if (file->level() == spdlog::level::off) return;
            file->set_level(spdlog::level::off);
            std::fprintf(stderr, "telemetry: %s: %s; this log ends here, the program goes on\n", path.c_str(),
                         reason.c_str());
        });
    }
    logger.set_level(spdlog_level(options.level));
    logger.flush_on(spdlog_level(options.level));
}

Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::debug(std::string_view message) { sinks_->log(spdlog::level::debug, message); }
void Log::info(std::string_view message) { sinks_->log(spdlog::level::info, message); }
void Log::warn(std::string_view message) { sinks_->log(spdlog::level::warn, message); }
void Log::error(std::string_view message) { sinks_->log(spdlog::level::err, message); }

}  // namespace mfsdp::runtime
