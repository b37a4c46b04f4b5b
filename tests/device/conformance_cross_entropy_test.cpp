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

struct Panel {
    std::int64_t tokens, columns, begin, vocabulary;
};

Filling some_ignored(std::int64_t vocabulary) {
    return [vocabulary](std::int64_t index, Random& random) {
        const auto id = static_cast<double>(random() % static_cast<std::uint64_t>(vocabulary));
        return index % 5 == 3 ? static_cast<double>(kIgnoredTarget) : id;
    };
}

void add_log_sum_exp_rows(std::vector<Row>& rows, const Panel& panel, double deviation) {
    const std::int64_t tokens = panel.tokens, columns = panel.columns;
    for (const bool first : {true, false}) {
        const auto argument = [&](const std::string& name, Filling filling) {
            return first ? output(name, {tokens}) : in_out(name, {tokens}, std::move(filling));
        };
        rows.push_back(row<LogSumExpUpdate>(
            text(tokens, columns) + " begin=" + std::to_string(panel.begin) + " deviation " +
                std::to_string(deviation) + (first ? " first" : " later"),
            {argument("maximum", normal(deviation)), argument("sum", uniform(1.0, 100.0)),
             in_out("target_logit", {tokens}, list({-7.0})),
             input("logits", {tokens, columns}, normal(deviation), Gaps::allowed),
             input("targets", {tokens}, some_ignored(panel.vocabulary), Gaps::forbidden, DType::int32)},
            [first, begin = panel.begin](Tensors t) {
                return LogSumExpUpdate{t[0], t[1], t[2], t[3], t[4], begin, first};
            },
            [first, panel](Values& v) {
                fold_panel(v[0], v[1], v[3], first);
                for (Size i = 0; i < v[2].size(); ++i) {
                    const auto target = static_cast<std::int64_t>(v[4][i]);
                    const std::int64_t column = target - panel.begin;
                    if (target == kIgnoredTarget) {
                        if (first) v[2][i] = 0.0;
                    } else if (column >= 0 && column < panel.columns) {
                        v[2][i] = v[3][i * static_cast<Size>(panel.columns) + static_cast<Size>(column)];
                    }
                }
            },
            Tolerance{.of_value = 1e-6}));
    }
}

struct Gradient {
    DType dtype = DType::float32;
    float z_loss = 0.0F;
    bool in_place = false;
    bool likely = false;  ///< probabilities between 1/3 and 3/4, where rounding twice would show
    [[nodiscard]] std::string text() const {
        std::string result = suffix({dtype}) + (likely ? " likely" : "");
        if (z_loss != 0.0F) result.append(" z_loss=").append(std::to_string(z_loss));
        return in_place ? result.append(" in place") : result;
    }
};

/// Targets all over the vocabulary, some ignored; maximum and sum as of the whole vocabulary need not be consistent
/// with this panel for the formula to hold.
void add_cross_entropy_row(std::vector<Row>& rows, const Panel& panel, const Filling& targets, const std::string& kind,
                           const Gradient& gradient) {
    const Shape shape{panel.tokens, panel.columns};
    const Filling logits = gradient.likely ? uniform(9.0, 9.1) : normal(3.0);
    const Filling maxima = gradient.likely ? list({9.2}) : uniform(9.0, 12.0);
    const Filling sums = gradient.likely ? uniform(1.2, 2.5) : uniform(1.0, 50.0);
    rows.push_back(row<CrossEntropyBackward>(
        text(panel.tokens, panel.columns) + " begin=" + std::to_string(panel.begin) + " " + kind + gradient.text(),
        {gradient.in_place ? in_out("logits", shape, logits, Gaps::allowed)
                           : input("logits", shape, logits, Gaps::allowed),
         input("maximum", {panel.tokens}, maxima), input("sum", {panel.tokens}, sums),
         input("targets", {panel.tokens}, targets, Gaps::forbidden, DType::int32),
         output("grad", gradient.in_place ? Shape{0, panel.columns} : shape, Gaps::allowed, gradient.dtype)},
        [begin = panel.begin, gradient](Tensors t) {
            return CrossEntropyBackward{
                gradient.in_place ? t[0] : t[4], t[0], t[1], t[2], t[3], begin, gradient.z_loss};
        },
        [panel, gradient](Values& v) {
            const auto columns = static_cast<Size>(panel.columns);
            std::vector<double>& grad = v[gradient.in_place ? 0 : 4];
            for (Size i = 0; i < v[1].size(); ++i) {
                const auto target = static_cast<std::int64_t>(v[3][i]);
                const double log_z = v[1][i] + std::log(v[2][i]);
                const double factor = 1.0 + 2.0 * static_cast<double>(gradient.z_loss) * log_z;
                for (Size c = 0; c < columns; ++c) {
                    const bool is_target = target == panel.begin + static_cast<std::int64_t>(c);
                    const double probability = std::exp(v[0][i * columns + c] - v[1][i]) / v[2][i];
                    grad[i * columns + c] =
                        target == kIgnoredTarget ? 0.0 : probability * factor - (is_target ? 1.0 : 0.0);
                }
            }
        },
        Tolerance{.of_value = 1e-5, .of_largest = 1e-7}));
}

void add_cross_entropy_rows(std::vector<Row>& rows, const Panel& panel, const Filling& targets,
                            const std::string& kind) {
    for (const Gradient& gradient : {Gradient{}, Gradient{DType::float32, 0.0F, true}, Gradient{DType::bfloat16},
                                     Gradient{DType::float32, 0.01F, true}, Gradient{DType::bfloat16, 0.5F}}) {
        add_cross_entropy_row(rows, panel, targets, kind, gradient);
    }
}

void add_loss_sum_row(std::vector<Row>& rows, std::int64_t tokens, const Filling& targets, const std::string& kind) {
    rows.push_back(row<LossSum>(
        sizes({{"n", tokens}}) + " " + kind,
        {input("maximum", {tokens}, uniform(-3.0, 12.0)), input("sum", {tokens}, uniform(1.0, 50.0)),
         input("target_logit", {tokens}, uniform(-10.0, -4.0)),
         input("targets", {tokens}, targets, Gaps::forbidden, DType::int32),
         output("loss_sum", {1}, Gaps::forbidden, DType::float64),
         output("target_count", {1}, Gaps::forbidden, DType::int64),
         output("log_z_squares", {1}, Gaps::forbidden, DType::float64)},
        [](Tensors t) { return LossSum{t[4], t[5], t[6], t[0], t[1], t[2], t[3]}; },
        [](Values& v) {
            v[4] = v[5] = v[6] = {0.0};
            for (Size i = 0; i < v[0].size(); ++i) {
                if (v[3][i] < 0.0) continue;
                const double log_z = v[0][i] + std::log(v[1][i]);
                v[4][0] += log_z - v[2][i];
                v[5][0] += 1.0;
                v[6][0] += log_z * log_z;
            }
        },
        Tolerance{.of_value = 1e-7}));  // losses are rounded to float32 one by one
}

}  // namespace

std::vector<Row> cross_entropy_rows() {
    std::vector<Row> rows;
    const Filling all_ignored = list({static_cast<double>(kIgnoredTarget)});
    for (const std::int64_t columns : {1, 7, 8, 512, 513, 4096}) add_log_sum_exp_rows(rows, {5, columns, 0, 5000}, 2.0);
    add_log_sum_exp_rows(rows, {1, 1003, 0, 1003}, 2.0);
    add_log_sum_exp_rows(rows, {40, 16, 16, 48}, 2.0);
    add_log_sum_exp_rows(rows, {2, 9001, 0, 9001}, 2.0);  // longer than what a GPU's block loads at once
    add_log_sum_exp_rows(rows, {9, 100, 0, 100}, 1e4);    // far beyond where exp overflows
    for (const Panel& panel : {Panel{1, 1, 0, 1}, Panel{9, 50, 0, 200}, Panel{9, 50, 150, 200}, Panel{21, 33, 64, 97},
                               Panel{3, 4096, 4096, 9000}, Panel{2, 5001, 0, 5001}}) {
        add_cross_entropy_rows(rows, panel, some_ignored(panel.vocabulary), "some ignored");
    }
    add_cross_entropy_rows(rows, {6, 11, 0, 40}, all_ignored, "all ignored");
    add_cross_entropy_rows(rows, {6, 11, 11, 40}, all_ignored, "all ignored");
    // The last row of the panel before, the first and the last of this one, the first of the next.
    add_cross_entropy_rows(rows, {4, 16, 32, 64}, list({31, 32, 47, 48}), "borders");
    add_cross_entropy_row(rows, {30, 16, 32, 64}, list({33, 40, 47}), "in the panel",
                          {DType::bfloat16, 0.0F, false, true});
    add_loss_sum_row(rows, 1, list({3}), "one");
    add_loss_sum_row(rows, 2500, some_ignored(100), "some ignored");
    add_loss_sum_row(rows, 10, all_ignored, "all ignored");
    add_loss_sum_row(rows, 0, list({0}), "none");
    std::vector<Row> none;
    add_log_sum_exp_rows(none, {0, 4, 0, 4}, 1.0);
    add_cross_entropy_rows(none, {0, 4, 0, 4}, all_ignored, "none");
    for (Row& empty : none) rows.push_back(allow_empty(std::move(empty)));
    return rows;
}

}  // namespace mfsdp::device::conformance
