#pragma once

#include "mfsdp/base/file_descriptor.h"
#include "mfsdp/runtime/telemetry/metrics.h"

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

namespace mfsdp::runtime {

/// Appends records to metrics.jsonl, each line by one write, so that a reader never waits for a buffer.
///
/// A write that fails later never stops training: it is reported once on `errors` and the file is closed.
class MetricsWriter {
  public:
    /// Opens or makes the file; failure is a ConfigError. A last line cut off by a crash is ended first.
    explicit MetricsWriter(const std::string& path);
    /// errors  where the one message of a failed write goes; outlives this object
    MetricsWriter(const std::string& path, std::ostream& errors);

    template <typename Record>
    void write(const Record& record) {
        write_line(metrics_line(record));
    }
    /// False once a write has failed.
    [[nodiscard]] bool is_open() const noexcept { return file_.has_value(); }

  private:
    void write_line(std::string line);

    std::optional<base::FileDescriptor> file_;
    std::ostream& errors_;
    bool line_is_cut_ = false;
};

}  // namespace mfsdp::runtime
