#include "mfsdp/runtime/telemetry/progress.h"

#include "support/catch.h"

#include <cmath>
#include <fstream>
#include <sstream>

using namespace mfsdp::runtime;

namespace {

ProgressUpdate update_at(std::int64_t step) {
    ProgressUpdate update;
    update.step = step;
    update.loss = 3.21044;
    update.grad_norm = 1.25;
    update.learning_rate = 3e-4;
    update.tokens_per_second = 5230;
    update.step_time_seconds = 2;
    return update;
}

}  // namespace

TEST_CASE("durations are as short as they can be") {
    CHECK(duration_text(7.4) == "0:07");
    CHECK(duration_text(754) == "12:34");
    CHECK(duration_text(3723) == "1:02:03");
    CHECK(duration_text(2 * 86400 + 3 * 3600 + 4 * 60 + 5) == "2d 03:04:05");
    CHECK(duration_text(-1) == "?");
    CHECK(duration_text(std::nan("")) == "?");
}

TEST_CASE("without a terminal each update is one line with loss, rate and ETA") {
    std::ostringstream output;
    Progress progress(100, false, output);
    progress.update(update_at(40));
    progress.finish();
    CHECK(output.str() == "step 40/100  loss 3.2104  grad_norm 1.25  lr 0.0003  5.2k tokens/s  2 s/step  ETA 2:00\n");
}

TEST_CASE("the bar redraws one line and ends it once") {
    std::ostringstream output;
    Progress progress(100, true, output);
    progress.update(update_at(25));
    const std::string first = "\r\x1b[K[#####...............]  25%  step 25/100  loss 3.2104  5.2k tokens/s  ETA 2:30";
    CHECK(output.str() == first);
    progress.update(update_at(100));
    const std::string last = "\r\x1b[K[####################] 100%  step 100/100  loss 3.2104  5.2k tokens/s  ETA 0:00";
    CHECK(output.str() == first + last);
    progress.finish();
    progress.finish();
    CHECK(output.str() == first + last + "\n");
}

TEST_CASE("the bar is full at the end only") {
    CHECK(progress_bar(update_at(999), 1000, 1).starts_with("[###################.]  99%"));
    CHECK(progress_bar(update_at(0), 1000, 1).starts_with("[....................]   0%"));
}

TEST_CASE("the ETA follows the smoothed step time") {
    std::ostringstream output;
    Progress progress(11, false, output);
    ProgressUpdate update = update_at(1);
    progress.update(update);
    update.step_time_seconds = 12;  // 2 + 0.1 * (12 - 2) = 3 seconds
    progress.update(update);
    CHECK(output.str().ends_with("ETA 0:30\n"));
}

TEST_CASE("a configured console style does not ask the terminal") {
    CHECK(draws_bar(ConsoleStyle::bar));
    CHECK_FALSE(draws_bar(ConsoleStyle::lines));
}

TEST_CASE("an output that fails is reported once and training goes on") {
    std::ofstream full("/dev/full");
    std::ostringstream errors;
    Progress progress(3, false, full, errors);
    for (int step = 1; step <= 3; ++step) progress.update(update_at(step));
    progress.finish();
    CHECK(errors.str() ==
          "telemetry: standard output cannot be written; no more progress is shown, training goes on\n");
}
