#include "mfsdp/device/ops/row_moment.h"

#include "device/conformance.h"

#include <cmath>

namespace mfsdp::device::conformance {

namespace {

using Size = std::size_t;

struct Rectangle {
    std::int64_t rows, columns;
};

std::string text(const Rectangle& r) { return sizes({{"m", r.rows}, {"n", r.columns}}); }
double number(float value) { return static_cast<double>(value); }

void add_moment_row(std::vector<Row>& rows, const Rectangle& r) {
    rows.push_back(row<RowMoment>(
        text(r),
        {in_out("moment", {r.rows}, uniform(0.0, 1.0)), input("in", {r.rows, r.columns}, normal(), Gaps::allowed)},
        [](Tensors t) {
            return RowMoment{t[0], t[1]};
        },
        [r](Values& v) {
            const auto columns = static_cast<Size>(r.columns);
            for (Size i = 0; i < v[0].size(); ++i) {
                double sum = 0.0;
                for (Size j = 0; j < columns; ++j) sum += v[1][i * columns + j] * v[1][i * columns + j];
                v[0][i] = number(0.95F) * v[0][i] + number(0.05F) * sum / static_cast<double>(columns);
            }
        },
        Tolerance{.of_value = 3e-7}));
}

void add_divide_row(std::vector<Row>& rows, const Rectangle& r, bool in_place) {
    std::vector<ArgumentOfRow> arguments{in_place ? in_out("in", {r.rows, r.columns}, normal(), Gaps::allowed)
                                                  : input("in", {r.rows, r.columns}, normal(), Gaps::allowed),
                                         input("moment", {r.rows}, uniform(0.0, 1.0))};
    if (!in_place) arguments.push_back(output("out", {r.rows, r.columns}, Gaps::allowed));
    rows.push_back(row<DivideRows>(
        text(r) + (in_place ? " in place" : ""), std::move(arguments),
        [in_place](Tensors t) {
            return DivideRows{.out = t[in_place ? 0 : 2], .in = t[0], .moment = t[1], .epsilon = 0.01F};
        },
        [=](Values& v) {
            const auto columns = static_cast<Size>(r.columns);
            std::vector<double> result = v[0];
            for (Size i = 0; i < result.size(); ++i) result[i] /= std::sqrt(v[1][i / columns]) + number(0.01F);
            v[in_place ? 0 : 2] = result;
        },
        Tolerance{.of_value = 4e-7}));
}

void add_ratio_row(std::vector<Row>& rows, const Rectangle& r, double numerator, double denominator) {
    rows.push_back(row<ScaleByRatio>(
        text(r) + " " + std::to_string(numerator) + "/" + std::to_string(denominator),
        {in_out("in", {r.rows, r.columns}, normal(), Gaps::allowed),
         input("numerator", {1}, list({numerator}), Gaps::forbidden, DType::float64),
         input("denominator", {1}, list({denominator}), Gaps::forbidden, DType::float64),
         output("out", {r.rows, r.columns}, Gaps::allowed)},
        [](Tensors t) {
            return ScaleByRatio{t[3], t[0], t[1], t[2]};
        },
        [=](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) {
                v[3][i] = denominator == 0.0 ? 0.0 : v[0][i] * (numerator / denominator);
            }
        },
        Tolerance{.of_value = 2e-7}));
}

/// Signs of every kind beside each other, zeros of both signs too.
void add_cautious_row(std::vector<Row>& rows, const Rectangle& r) {
    constexpr float kDecay = 0.9F, kStep = 0.02F;
    rows.push_back(row<CautiousUpdate>(
        text(r),
        {in_out("weight", {r.rows, r.columns}, list({1.0, -2.0, 0.0, 1e-30, -1e-30, 3.0, -0.0}), Gaps::allowed),
         input("direction", {r.rows, r.columns}, list({1.0, 1.0, -1.0, 0.0, -1e-30, -1e-30, -1.0, 2.0, 1e-30}),
               Gaps::allowed)},
        [](Tensors t) {
            return CautiousUpdate{t[0], t[1], kDecay, kStep};
        },
        [](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) {
                const bool agree = v[0][i] * v[1][i] >= 0.0;
                v[0][i] = (agree ? number(kDecay) : 1.0) * v[0][i] - number(kStep) * v[1][i];
            }
        },
        Tolerance{.of_value = 2e-7}));
}

}  // namespace

std::vector<Row> row_moment_rows() {
    std::vector<Row> rows;
    for (const Rectangle& r : {Rectangle{1, 1}, Rectangle{3, 7}, Rectangle{33, 130}, Rectangle{2, 20003}}) {
        add_moment_row(rows, r);
        add_divide_row(rows, r, false);
        add_divide_row(rows, r, true);
        add_ratio_row(rows, r, 3.0, 7.0);
        add_ratio_row(rows, r, 0.0, 7.0);
        add_ratio_row(rows, r, 3.0, 0.0);
        add_cautious_row(rows, r);
    }
    return rows;
}

}  // namespace mfsdp::device::conformance
