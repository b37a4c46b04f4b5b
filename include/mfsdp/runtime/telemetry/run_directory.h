#pragma once

#include "mfsdp/base/file_descriptor.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace mfsdp::runtime {

/// The directory of one run, made if absent and held by rank 0 while this object lives (advisory lock on `.lock`).
///
/// Whatever prevents that, or a process that holds it already, is a ConfigError that names the path. A directory of an
/// earlier run is taken as it is: metrics and logs are appended to, the configuration and the weights are replaced.
/// Source: docs/formats.md, run directory.
class RunDirectory {
  public:
    explicit RunDirectory(const std::string& path);

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
    /// Whether another run had left metrics or weights here when this object was made.
    [[nodiscard]] bool had_a_run() const noexcept { return had_a_run_; }

    /// Writes `config.resolved.json`, whole or not at all.
    void write_resolved_config(std::string_view json) const;

  private:
    std::string path_;
    base::FileDescriptor lock_;
    bool had_a_run_ = false;
};

/// `<run_dir>/logs/rank_00000.log`; the folder is made if absent. For ranks that do not hold the RunDirectory too.
[[nodiscard]] std::string rank_log_path(const std::string& run_dir, std::int64_t rank);

}  // namespace mfsdp::runtime
