#include "mfsdp/runtime/telemetry/progress.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <iostream>

#include <unistd.h>

namespace mfsdp::runtime {
namespace {

constexpr std::size_t kBarCells = 20;
constexpr double kSmoothing = 0.1;  // about the last twenty updates decide the ETA
constexpr const char* kClearLine = "\r\x1b[K";

template <typename... Arguments>
std::string format(const char* pattern, Arguments... arguments) {
    std::array<char, 256> text{};
    std::snprintf(text.data(), text.size(), pattern, arguments...);
    return text.data();
}

std::string rate_text(double per_second) {
    if (per_second >= 1e6) return format("%.2fM", per_second / 1e6);
    if (per_second >= 1e3) return format("%.1fk", per_second / 1e3);
    return format("%.0f", per_second);
}

std::string position_text(std::int64_t step, std::int64_t total_steps) {
    return format("step %lld/%lld", static_cast<long long>(step), static_cast<long long>(total_steps));
}

}  // namespace

std::string duration_text(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0) return "?";
    const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e12)));
    const auto days = static_cast<long long>(whole / 86400);
    const auto hours = static_cast<int>(whole / 3600 % 24);
    const auto minutes = static_cast<int>(whole / 60 % 60);
    const auto rest = static_cast<int>(whole % 60);
    if (days > 0) return format("%lldd %02d:%02d:%02d", days, hours, minutes, rest);
    if (hours > 0) return format("%d:%02d:%02d", hours, minutes, rest);
    return format("%d:%02d", minutes, rest);
}

std::string progress_line(const ProgressUpdate& update, std::int64_t total_steps, double eta_seconds) {
    std::string text = position_text(update.step, total_steps) + format("  loss %.4f", update.loss) +
                       format("  grad_norm %.4g", update.grad_norm) + format("  lr %.4g  ", update.learning_rate) +
                       rate_text(update.tokens_per_second) +
                       format(" tokens/s  %.3g s/step", update.step_time_seconds) + "  ETA " +
                       duration_text(eta_seconds);
    if (!update.slowest.empty()) text += "  slowest " + update.slowest;
    return text;
}

std::string progress_bar(const ProgressUpdate& update, std::int64_t total_steps, double eta_seconds) {
    const std::int64_t step = std::clamp<std::int64_t>(update.step, 0, total_steps);
    const auto share = static_cast<double>(step) / static_cast<double>(total_steps);
    // Rounded down, so that a full bar and 100% mean the end.
    const auto cells = static_cast<std::size_t>(share * static_cast<double>(kBarCells));
    std::string text = "[";
    text.append(cells, '#').append(kBarCells - cells, '.');
    text += format("] %3d%%  ", static_cast<int>(share * 100));
    text += position_text(update.step, total_steps) + format("  loss %.4f  ", update.loss);
    text += rate_text(update.tokens_per_second) + " tokens/s  ETA " + duration_text(eta_seconds);
    return text;
}

bool draws_bar(ConsoleStyle style) {
    return style == ConsoleStyle::bar || (style == ConsoleStyle::automatic && ::isatty(STDOUT_FILENO) == 1);
}

Progress::Progress(std::int64_t total_steps, bool bar, std::ostream& output)
    : Progress(total_steps, bar, output, std::cerr) {}

Progress::Progress(std::int64_t total_steps, bool bar, std::ostream& output, std::ostream& errors)
    : total_steps_(total_steps), bar_(bar), output_(output), errors_(errors) {
    MFSDP_ASSERT(total_steps >= 1, "the configuration refuses a run without steps");
}

void Progress::update(const ProgressUpdate& update) {
    mean_step_seconds_ = mean_step_seconds_ == 0
                             ? update.step_time_seconds
                             : mean_step_seconds_ + kSmoothing * (update.step_time_seconds - mean_step_seconds_);
    const double eta = static_cast<double>(std::max<std::int64_t>(total_steps_ - update.step, 0)) * mean_step_seconds_;
    if (bar_) {
        output_ << kClearLine << progress_bar(update, total_steps_, eta) << std::flush;
        line_is_open_ = true;
    } else {
        output_ << progress_line(update, total_steps_, eta) << std::endl;
    }
    report_lost_output();
}

// The stream stays failed and swallows what follows.
void Progress::report_lost_output() {
    if (output_ || is_lost_) return;
    is_lost_ = true;
    errors_ << "telemetry: standard output cannot be written; no more progress is shown, training goes on" << std::endl;
}

void Progress::finish() {
    if (line_is_open_) output_ << std::endl;
    line_is_open_ = false;
}

}  // namespace mfsdp::runtime
