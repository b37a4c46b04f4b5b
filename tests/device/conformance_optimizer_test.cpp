#include "mfsdp/base/exact_sum.h"
#include "mfsdp/device/ops/optimizer.h"

#include "device/conformance.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace mfsdp::device::conformance {

namespace {

using Size = std::size_t;

constexpr GradientScale kScale{0.125F, 0.7F};

double scaled(double gradient) {
    return static_cast<double>((static_cast<float>(gradient) * kScale.inverse_targets) * kScale.clip);
}

std::string text(std::int64_t rows, std::int64_t columns) { return sizes({{"m", rows}, {"n", columns}}); }

Shape matrix(std::int64_t rows, std::int64_t columns) { return {rows, columns}; }

/// Parameters of these sizes in one launch, each with a decay and a rate of its own.
void add_adamw_row(std::vector<Row>& rows, const std::vector<std::int64_t>& counts) {
    AdamWStep step{.count = std::ssize(counts), .scale = kScale, .root_correction = 0.3F};
    std::vector<ArgumentOfRow> arguments;
    std::string text = "n=";
    for (Size k = 0; k < counts.size(); ++k) {
        const Shape shape{counts[k]};
        const std::string number = std::to_string(k);
        arguments.insert(arguments.end(), {in_out("weight " + number, shape), in_out("exp_avg " + number, shape),
                                           in_out("exp_avg_sq " + number, shape, uniform(0.0, 1.0)),
                                           input("gradient " + number, shape)});
        step.tasks[k].decay = 0.999F - 0.01F * static_cast<float>(k);
        step.tasks[k].step_size = 0.01F * static_cast<float>(k + 1);
        text.append(k == 0 ? "" : ",").append(std::to_string(counts[k]));
    }
    rows.push_back(row<AdamWStep>(
        text, std::move(arguments),
        [step](Tensors t) {
            AdamWStep result = step;
            for (Size k = 0; k < static_cast<Size>(step.count); ++k) {
                AdamWStep::Task& task = result.tasks[k];
                task.weight = t[4 * k];
                task.exp_avg = t[4 * k + 1];
                task.exp_avg_sq = t[4 * k + 2];
                task.gradient = t[4 * k + 3];
            }
            return result;
        },
        [step](Values& v) {
            const auto number = [](float value) { return static_cast<double>(value); };
            for (Size k = 0; k < static_cast<Size>(step.count); ++k) {
                auto &weight = v[4 * k], &exp_avg = v[4 * k + 1], &exp_avg_sq = v[4 * k + 2];
                for (Size i = 0; i < weight.size(); ++i) {
                    const double g = scaled(v[4 * k + 3][i]);
                    exp_avg[i] += number(step.one_minus_beta1) * (g - exp_avg[i]);
                    exp_avg_sq[i] = number(step.beta2) * exp_avg_sq[i] + number(step.one_minus_beta2) * g * g;
                    const double root = std::sqrt(exp_avg_sq[i]) / number(step.root_correction) + number(step.epsilon);
                    weight[i] =
                        number(step.tasks[k].decay) * weight[i] - number(step.tasks[k].step_size) * exp_avg[i] / root;
                }
            }
        },
        Tolerance{.of_value = 1e-6, .of_largest = 3e-7}));
}

/// Sums of squares of a matrix of `columns`, a sum for each kSquareSumBlock elements of a row, or column.
std::vector<double> square_sums_in(const std::vector<double>& values, std::int64_t columns, bool by_columns) {
    const std::int64_t rows = columns == 0 ? 0 : std::ssize(values) / columns;
    const std::int64_t lines = by_columns ? columns : rows, length = by_columns ? rows : columns;
    const std::int64_t sums_of_line = square_sums_of(length);
    std::vector<double> sums(static_cast<Size>(lines * sums_of_line));
    for (std::int64_t line = 0; line < lines; ++line) {
        for (std::int64_t i = 0; i < length; ++i) {
            const double x = values[static_cast<Size>(by_columns ? i * columns + line : line * columns + i)];
            sums[static_cast<Size>(line * sums_of_line + i / kSquareSumBlock)] += x * x;
        }
    }
    return sums;
}

Shape shape_of_sums(std::int64_t m, std::int64_t n, bool by_columns) {
    return by_columns ? Shape{n, square_sums_of(m)} : Shape{m, square_sums_of(n)};
}

enum class Sums { none, by_rows, by_columns };

void add_momentum_row(std::vector<Row>& rows, std::int64_t m, std::int64_t n, float factor, bool nesterov, Sums sums) {
    constexpr float kBeta = 0.95F;
    const bool by_columns = sums == Sums::by_columns;
    std::vector<ArgumentOfRow> arguments{in_out("momentum", matrix(m, n)), output("update", matrix(m, n)),
                                         input("gradient", matrix(m, n))};
    if (sums != Sums::none) {
        arguments.push_back(output("square_sums", shape_of_sums(m, n, by_columns), Gaps::forbidden, DType::float64));
        arguments.back().tolerance = Tolerance{.of_value = 3e-6, .of_largest = 1e-7};
    }
    const char* const names[] = {"", " sums by rows", " sums by columns"};
    rows.push_back(row<MomentumUpdate>(
        text(m, n) + " factor=" + std::to_string(factor) + (nesterov ? " nesterov" : "") +
            names[static_cast<Size>(sums)],
        std::move(arguments),
        [=](Tensors t) {
            return MomentumUpdate{.momentum = t[0],
                                  .update = t[1],
                                  .gradient = t[2],
                                  .square_sums = sums == Sums::none ? Tensor{} : t[3],
                                  .by_columns = by_columns,
                                  .scale = kScale,
                                  .beta = kBeta,
                                  .gradient_factor = factor,
                                  .nesterov = nesterov};
        },
        [=](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) {
                const double part = static_cast<double>(factor) * scaled(v[2][i]);
                v[0][i] = static_cast<double>(kBeta) * v[0][i] + part;
                v[1][i] = nesterov ? part + static_cast<double>(kBeta) * v[0][i] : v[0][i];
            }
            if (sums != Sums::none) v[3] = square_sums_in(v[1], n, by_columns);
        },
        Tolerance{.of_value = 1e-6, .of_largest = 2e-7}));
}

void add_square_sums_row(std::vector<Row>& rows, std::int64_t m, std::int64_t n, bool by_columns) {
    rows.push_back(row<BlockSquareSums>(
        text(m, n) + (by_columns ? " by columns" : ""),
        {output("square_sums", shape_of_sums(m, n, by_columns), Gaps::forbidden, DType::float64),
         input("in", matrix(m, n), normal(), Gaps::allowed)},
        [=](Tensors t) {
            return BlockSquareSums{t[0], t[1], by_columns};
        },
        [=](Values& v) { v[0] = square_sums_in(v[1], n, by_columns); }, Tolerance{.of_value = 1e-13}));
}

void add_norm_of_sums_row(std::vector<Row>& rows, std::int64_t m, std::int64_t n) {
    rows.push_back(row<NormOfSquareSums>(
        text(m, n),
        {input("square_sums", matrix(m, n), uniform(0.0, 2.0), Gaps::forbidden, DType::float64),
         output("norm", {1}, Gaps::forbidden, DType::float64)},
        [](Tensors t) {
            return NormOfSquareSums{t[1], t[0]};
        },
        [](Values& v) {
            long double sum = 0.0L;
            for (const double value : v[0]) sum += static_cast<long double>(value);
            v[1] = {static_cast<double>(std::sqrt(sum))};
        },
        Tolerance{.of_value = 1e-14}));
}

double norm_of(const std::vector<double>& values) {
    long double squares = 0.0L;
    for (const double value : values) squares += static_cast<long double>(value) * static_cast<long double>(value);
    return static_cast<double>(std::sqrt(squares));
}

void add_norm_row(std::vector<Row>& rows, std::int64_t m, std::int64_t n, double deviation,
                  DType dtype = DType::float32) {
    rows.push_back(row<FrobeniusNorm>(
        text(m, n) + " deviation " + std::to_string(deviation) + suffix({dtype}),
        {input("in", matrix(m, n), normal(deviation), Gaps::allowed, dtype),
         output("norm", {1}, Gaps::forbidden, DType::float64)},
        [](Tensors t) {
            return FrobeniusNorm{t[1], t[0]};
        },
        [](Values& v) { v[1] = {norm_of(v[0])}; }, Tolerance{.of_value = 1e-14}));
}

void add_divide_row(std::vector<Row>& rows, std::int64_t m, std::int64_t n, double norm, DType dtype = DType::float32) {
    std::ostringstream name;
    name << text(m, n) << " norm " << norm << suffix({dtype});
    rows.push_back(row<DivideByNorm>(
        name.str(),
        {input("in", matrix(m, n), normal(norm == 0.0 ? 1.0 : norm), Gaps::allowed),
         input("norm", {1}, list({norm}), Gaps::forbidden, DType::float64),
         output("out", matrix(m, n), Gaps::allowed, dtype)},
        [](Tensors t) {
            return DivideByNorm{t[2], t[0], t[1]};
        },
        [](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) v[2][i] = v[1][0] == 0.0 ? 0.0 : v[0][i] / v[1][0];
        },
        Tolerance{.of_value = 2e-7}));
}

void add_divide_transposed_row(std::vector<Row>& rows, std::int64_t m, std::int64_t n, double norm, DType dtype) {
    std::ostringstream name;
    name << "transposed " << text(m, n) << " norm " << norm << suffix({dtype});
    rows.push_back(row<DivideByNorm>(
        name.str(),
        {input("in", matrix(m, n), normal(norm == 0.0 ? 1.0 : norm), Gaps::allowed),
         input("norm", {1}, list({norm}), Gaps::forbidden, DType::float64),
         output("out", matrix(n, m), Gaps::allowed, dtype)},
        [](Tensors t) { return DivideByNorm{.out = t[2], .in = t[0], .norm = t[1], .transposed = true}; },
        [=](Values& v) {
            for (std::int64_t i = 0; i < m * n; ++i) {
                const auto from = static_cast<Size>(i), to = static_cast<Size>(i % n * m + i / n);
                v[2][to] = v[1][0] == 0.0 ? 0.0 : v[0][from] / v[1][0];
            }
        },
        Tolerance{.of_value = 2e-7}));
}

void add_weight_row(std::vector<Row>& rows, std::int64_t m, std::int64_t n, DType direction = DType::float32) {
    constexpr float kDecay = 0.998F, kStep = 0.02F;
    rows.push_back(row<WeightUpdate>(
        text(m, n) + suffix({direction}),
        {in_out("weight", matrix(m, n), normal(), Gaps::allowed),
         input("direction", matrix(m, n), normal(), Gaps::allowed, direction)},
        [](Tensors t) {
            return WeightUpdate{t[0], t[1], kDecay, kStep};
        },
        [](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) {
                v[0][i] = static_cast<double>(kDecay) * v[0][i] - static_cast<double>(kStep) * v[1][i];
            }
        },
        Tolerance{.of_value = 1e-6, .of_largest = 1e-7}));
}

/// The values are multiples of 1/16 below 8, so sums of squares are exact in any order and the words are known.
/// Word 9 is `before` at first: 2^32 - 1 makes a carry.
void add_square_sum_row(std::vector<Row>& rows, std::int64_t m, std::int64_t n, bool with_nan, double before = 0.0) {
    const Filling sixteenths = [with_nan](std::int64_t index, Random& random) {
        const auto value = static_cast<double>(random() % 256) / 16.0 - 8.0;
        return with_nan && index == 1 ? std::nan("") : value;
    };
    rows.push_back(row<SquareSum>(
        text(m, n) + (with_nan ? " with NaN" : "") + (before != 0.0 ? " with a carry" : ""),
        {input("in", matrix(m, n), sixteenths, Gaps::allowed),
         in_out(
             "words", {ExactSum::kWords + 1},
             [before](std::int64_t index, Random&) { return index == 9 ? before : 0.0; }, Gaps::forbidden,
             DType::int64)},
        [](Tensors t) {
            return SquareSum{t[1], t[0]};
        },
        [columns = static_cast<Size>(n)](Values& v) {
            // A sum S < 2^32 with 8 bits after the point is the integer S * 2^298 in words of 32 bits: 2^298 is bit 10
            // of word 9, so the words 9 and 8 hold S * 2^10 and nothing is below.
            double whole = 0.0, nonfinite = 0.0;
            for (Size r = 0; columns > 0 && r < v[0].size() / columns; ++r) {
                double sum = 0.0;
                for (Size c = 0; c < columns; ++c) sum += v[0][r * columns + c] * v[0][r * columns + c];
                (std::isfinite(sum) ? whole : nonfinite) += std::isfinite(sum) ? sum : 1.0;
            }
            const double shifted = whole * 1024.0;
            const double word = v[1][9] + std::floor(shifted);
            v[1][9] = std::fmod(word, 0x1p32);
            v[1][10] += std::floor(word * 0x1p-32);
            v[1][8] += (shifted - std::floor(shifted)) * 0x1p32;
            v[1][ExactSum::kWords] += nonfinite;
        },
        Tolerance{}));
}

}  // namespace

std::vector<Row> optimizer_rows() {
    std::vector<Row> rows;
    for (const std::int64_t n : {1, 9, 1003}) {
        add_adamw_row(rows, {n});
        for (const bool nesterov : {false, true}) {
            add_momentum_row(rows, 1, n, 0.05F, nesterov, Sums::none);
            add_momentum_row(rows, n, 1, 1.0F, nesterov, Sums::by_rows);
        }
    }
    struct Rectangle {
        std::int64_t rows, columns;
    };
    // Several blocks to a tile, several tiles to a row, and what is left over of each.
    for (const auto& [m, n] :
         {Rectangle{1, 9}, Rectangle{700, 7}, Rectangle{33, 128}, Rectangle{2, 5003}, Rectangle{3, 2048}}) {
        add_momentum_row(rows, m, n, 0.05F, true, Sums::by_rows);
        add_momentum_row(rows, n, m, 0.05F, true, Sums::by_columns);
        add_square_sums_row(rows, m, n, false);
        add_square_sums_row(rows, n, m, true);
    }
    add_momentum_row(rows, 1100, 40, 1.0F, false, Sums::by_columns);  // vectors, two blocks of rows and two groups
    add_square_sums_row(rows, 1100, 40, true);
    add_adamw_row(rows, {5, 0, 3000, 1, 2048, 17});
    add_adamw_row(rows, std::vector<std::int64_t>(kMaxAdamWTasks, 11));
    for (const auto& [m, n] : {Rectangle{1, 1}, Rectangle{3, 7}, Rectangle{33, 130}, Rectangle{2, 5003}}) {
        add_norm_row(rows, m, n, 1.0);
        add_norm_row(rows, m, n, 1e-25);  // squares below float32
        add_norm_of_sums_row(rows, m, n);
        add_divide_row(rows, m, n, 3.0);
        add_divide_row(rows, m, n, 0.0);
        add_weight_row(rows, m, n);
        add_square_sum_row(rows, m, n, false);
    }
    add_square_sum_row(rows, 4, 6, true);
    add_square_sum_row(rows, 1500, 2, false);
    add_square_sum_row(rows, 3, 7, false, 0x1p32 - 1.0);
    add_norm_row(rows, 1500, 2, 1.0);
    for (const DType dtype : {DType::bfloat16, DType::float16}) {
        for (const auto& [m, n] : {Rectangle{3, 7}, Rectangle{2, 5003}}) {
            add_norm_row(rows, m, n, 1.0, dtype);
            add_divide_row(rows, m, n, 3.0, dtype);
            add_divide_row(rows, m, n, 0.0, dtype);
            add_divide_row(rows, m, n, 1e-40, dtype);  // a norm that float32 does not hold well
            add_weight_row(rows, m, n, dtype);
        }
    }
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
        for (const auto& [m, n] : {Rectangle{1, 1}, Rectangle{3, 7}, Rectangle{130, 33}, Rectangle{128, 64}}) {
            add_divide_transposed_row(rows, m, n, 3.0, dtype);
        }
        add_divide_transposed_row(rows, 65, 16, 0.0, dtype);
        add_divide_transposed_row(rows, 64, 64, 1e-40, dtype);
    }
    add_norm_row(rows, 0, 5, 1.0);  // the norm of nothing is 0
    add_norm_of_sums_row(rows, 0, 2);
    std::vector<Row> none;
    add_adamw_row(none, {0});
    for (const Sums sums : {Sums::none, Sums::by_rows, Sums::by_columns}) {
        add_momentum_row(none, 0, 3, 1.0F, true, sums);
        add_momentum_row(none, 3, 0, 1.0F, true, sums);
    }
    add_square_sums_row(none, 0, 3, true);
    add_square_sums_row(none, 3, 0, true);
    add_square_sums_row(none, 0, 3, false);
    add_divide_row(none, 0, 3, 1.0);
    add_divide_transposed_row(none, 0, 3, 1.0, DType::float32);
    add_weight_row(none, 0, 3);
    for (Row& empty : none) rows.push_back(allow_empty(std::move(empty)));
    return rows;
}

}  // namespace mfsdp::device::conformance
