#include "mfsdp/device/ops/cross_entropy.h"

#include "device/conformance.h"
#include "device/reference.h"

#include <algorithm>
#include <cmath>

namespace mfsdp::device::conformance {

namespace {

using reference::Size;
using reference::Vector;

std::string text(std::int64_t tokens, std::int64_t columns) { return sizes({{"n", tokens}, {"panel", columns}}); }

/// maximum and sum after the panel, by the definition in the operation's header.
void fold_panel(Vector& maximum, Vector& sum, const Vector& logits, bool first) {
    const Size columns = maximum.empty() ? 0 : logits.size() / maximum.size();
    for (Size i = 0; i < maximum.size(); ++i) {
        double largest = first ? -INFINITY : maximum[i];
        for (Size c = 0; c < columns; ++c) largest = std::max(largest, logits[i * columns + c]);
        double total = first ? 0.0 : sum[i] * std::exp(maximum[i] - largest);
        for (Size c = 0; c < columns; ++c) total += std::exp(logits[i * columns + c] - largest);
        maximum[i] = largest;
        sum[i] = total;
    }
}

void add_log_sum_exp_rows(std::vector<Row>& rows, std::int64_t tokens, std::int64_t columns, double deviation) {
    for (const bool first : {true, false}) {
        const auto argument = [&](const std::string& name, Filling filling) {
            return first ? output(name, {tokens}) : in_out(name, {tokens}, std::move(filling));
        };
        rows.push_back(row<LogSumExpUpdate>(
            text(tokens, columns) + " deviation " + std::to_string(deviation) + (first ? " first" : " later"),
            {argument("maximum", normal(deviation)), argument("sum", uniform(1.0, 100.0)),
             input("logits", {tokens, columns}, normal(deviation), Gaps::allowed)},
            [first](Tensors t) {
                return LogSumExpUpdate{t[0], t[1], t[2], first};
            },
            [first](Values& v) { fold_panel(v[0], v[1], v[2], first); }, Tolerance{.of_value = 1e-6}));
    }
}

struct Panel {
    std::int64_t tokens, columns, begin, vocabulary;
};

/// Targets all over the vocabulary, some ignored; maximum and sum as of the whole vocabulary need not be consistent
/// with this panel for the formula to hold.
void add_cross_entropy_row(std::vector<Row>& rows, const Panel& panel, const Filling& targets,
                           const std::string& kind) {
    rows.push_back(row<CrossEntropyBackward>(
        text(panel.tokens, panel.columns) + " begin=" + std::to_string(panel.begin) + " " + kind,
        {in_out("logits", {panel.tokens, panel.columns}, normal(3.0), Gaps::allowed),
         in_out("loss", {panel.tokens}, list({-7.0})), input("maximum", {panel.tokens}, uniform(9.0, 12.0)),
         input("sum", {panel.tokens}, uniform(1.0, 50.0)),
         input("targets", {panel.tokens}, targets, Gaps::forbidden, DType::int32)},
        [begin = panel.begin](Tensors t) { return CrossEntropyBackward{t[0], t[1], t[2], t[3], t[4], begin}; },
        [panel](Values& v) {
            const auto columns = static_cast<Size>(panel.columns);
            for (Size i = 0; i < v[1].size(); ++i) {
                const auto target = static_cast<std::int64_t>(v[4][i]);
                const bool ignored = target == kIgnoredTarget;
                if (ignored && panel.begin == 0) v[1][i] = 0.0;
                for (Size c = 0; c < columns; ++c) {
                    double& logit = v[0][i * columns + c];
                    const bool is_target = target == panel.begin + static_cast<std::int64_t>(c);
                    if (is_target) v[1][i] = v[2][i] + std::log(v[3][i]) - logit;
                    logit = ignored ? 0.0 : std::exp(logit - v[2][i]) / v[3][i] - (is_target ? 1.0 : 0.0);
                }
            }
        },
        Tolerance{.of_value = 1e-5, .of_largest = 1e-7}));
}

Filling some_ignored(std::int64_t vocabulary) {
    return [vocabulary](std::int64_t index, Random& random) {
        const auto id = static_cast<double>(random() % static_cast<std::uint64_t>(vocabulary));
        return index % 5 == 3 ? static_cast<double>(kIgnoredTarget) : id;
    };
}

void add_loss_sum_row(std::vector<Row>& rows, std::int64_t tokens, const Filling& targets, const std::string& kind) {
    rows.push_back(row<LossSum>(
        sizes({{"n", tokens}}) + " " + kind,
        {input("loss", {tokens}, uniform(0.0, 12.0)),
         input("targets", {tokens}, targets, Gaps::forbidden, DType::int32),
         output("loss_sum", {1}, Gaps::forbidden, DType::float64),
         output("target_count", {1}, Gaps::forbidden, DType::int64)},
        [](Tensors t) {
            return LossSum{t[2], t[3], t[0], t[1]};
        },
        [](Values& v) {
            v[2] = {0.0};
            for (const double loss : v[0]) v[2][0] += loss;
            v[3] = {static_cast<double>(std::count_if(v[1].begin(), v[1].end(), [](double t) { return t >= 0.0; }))};
        },
        Tolerance{.of_value = 1e-13}));
}

}  // namespace

std::vector<Row> cross_entropy_rows() {
    std::vector<Row> rows;
    const Filling all_ignored = list({static_cast<double>(kIgnoredTarget)});
    for (const std::int64_t columns : {1, 7, 8, 512, 513, 4096}) add_log_sum_exp_rows(rows, 5, columns, 2.0);
    add_log_sum_exp_rows(rows, 1, 1003, 2.0);
    add_log_sum_exp_rows(rows, 9, 100, 1e4);  // far beyond where exp overflows
    for (const Panel& panel : {Panel{1, 1, 0, 1}, Panel{9, 50, 0, 200}, Panel{9, 50, 150, 200}, Panel{21, 33, 64, 97},
                               Panel{3, 4096, 4096, 9000}}) {
        add_cross_entropy_row(rows, panel, some_ignored(panel.vocabulary), "some ignored");
    }
    add_cross_entropy_row(rows, {6, 11, 0, 40}, all_ignored, "all ignored");
    add_cross_entropy_row(rows, {6, 11, 11, 40}, all_ignored, "all ignored");
    // The last row of the panel before, the first and the last of this one, the first of the next.
    add_cross_entropy_row(rows, {4, 16, 32, 64}, list({31, 32, 47, 48}), "borders");
    add_loss_sum_row(rows, 1, list({3}), "one");
    add_loss_sum_row(rows, 2500, some_ignored(100), "some ignored");
    add_loss_sum_row(rows, 10, all_ignored, "all ignored");
    add_loss_sum_row(rows, 0, list({0}), "none");
    std::vector<Row> none;
    add_log_sum_exp_rows(none, 0, 4, 1.0);
    add_cross_entropy_row(none, {0, 4, 0, 4}, all_ignored, "none");
    for (Row& empty : none) rows.push_back(allow_empty(std::move(empty)));
    return rows;
}

}  // namespace mfsdp::device::conformance
