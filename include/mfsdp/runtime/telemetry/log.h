#pragma once

#include "mfsdp/runtime/config/train_config.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace mfsdp::runtime {

struct LogOptions {
    LogLevel level = LogLevel::info;
    std::int64_t rank = 0;     ///< named in the lines of the file
    bool console = true;       ///< lines on stderr; usually rank 0 only
    bool clears_line = false;  ///< a progress bar shares the terminal: erase it before a console line
    std::string file_path;     ///< appended to; empty: no file
};

/// Messages for people: on stderr and, if asked, in one file per rank. Several threads may log.
///
/// A file that cannot be opened is a ConfigError; a write that fails later is reported once on stderr, the file gets
/// no more lines and the program goes on.
class Log {
  public:
    explicit Log(const LogOptions& options);
    ~Log();
    Log(Log&&) noexcept;
    Log& operator=(Log&&) noexcept;

    /// Messages below the level are dropped. The text is taken as it is, no format characters; each of its lines is
    /// logged by itself, so that every line of a log file names time, rank and level.
    void debug(std::string_view message);
    void info(std::string_view message);
    void warn(std::string_view message);
    void error(std::string_view message);

  private:
    struct Sinks;
    std::unique_ptr<Sinks> sinks_;
};

}  // namespace mfsdp::runtime
