#pragma once

#include "mfsdp/runtime/config/train_config.h"

#include <cstdint>
#include <iosfwd>
#include <string>

namespace mfsdp::runtime {

/// What a person watching a run wants to see of one step.
struct ProgressUpdate {
    std::int64_t step = 0;  ///< completed steps
    double loss = 0;
    double grad_norm = 0;
    double learning_rate = 0;
    double tokens_per_second = 0;
    double step_time_seconds = 0;
    std::string slowest{};  ///< the rank the others waited for: "rank 3 (n2)"; empty: there is one rank
};

/// Shows how far training is: a bar that redraws itself on a terminal, one line per update otherwise. An output that
/// fails is reported once on stderr, and no more is shown.
class Progress {
  public:
    /// total_steps  of the whole run, >= 1
    /// bar          draw a bar; see draws_bar
    /// output       outlives this object
    Progress(std::int64_t total_steps, bool bar, std::ostream& output);
    /// errors       where the one message of a failed output goes; outlives this object
    Progress(std::int64_t total_steps, bool bar, std::ostream& output, std::ostream& errors);

    void update(const ProgressUpdate& update);
    /// Ends the bar's line, so that what is printed next starts on its own. Harmless when repeated.
    void finish();

  private:
    void report_lost_output();

    std::int64_t total_steps_;
    bool bar_;
    std::ostream& output_;
    std::ostream& errors_;
    double mean_step_seconds_ = 0;  ///< smoothed; 0 before the first update
    bool line_is_open_ = false;
    bool is_lost_ = false;
};

/// Resolves `telemetry.console`: automatic draws a bar if standard output is a terminal.
[[nodiscard]] bool draws_bar(ConsoleStyle style);

/// `step 12/100  loss 3.2104  grad_norm 1.204  lr 0.0003  5.2k tokens/s  0.41 s/step  ETA 1:02:03`
[[nodiscard]] std::string progress_line(const ProgressUpdate& update, std::int64_t total_steps, double eta_seconds);
/// `[#####...............]  25%  step 25/100  loss 3.2104  5.2k tokens/s  ETA 1:02:03`
[[nodiscard]] std::string progress_bar(const ProgressUpdate& update, std::int64_t total_steps, double eta_seconds);
/// `0:07`, `12:34`, `1:02:03`, `2d 03:04:05`
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace mfsdp::runtime
