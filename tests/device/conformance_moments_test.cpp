#include "mfsdp/device/ops/moments.h"

#include "device/conformance.h"

#include <cmath>

namespace mfsdp::device::conformance {

namespace {

using Size = std::size_t;

constexpr GradientScale kScale{0.125F, 0.7F};
constexpr Tolerance kTolerance{.of_value = 1e-6, .of_largest = 3e-7};

double number(float value) { return static_cast<double>(value); }

double scaled(double gradient) { return number((static_cast<float>(gradient) * kScale.inverse_targets) * kScale.clip); }

void add_scale_row(std::vector<Row>& rows, std::int64_t n, bool in_place) {
    std::vector<ArgumentOfRow> arguments{in_place ? in_out("gradient", {n}) : output("out", {n})};
    if (!in_place) arguments.push_back(input("gradient", {n}));
    rows.push_back(row<ScaleGradient>(
        sizes({{"n", n}}) + (in_place ? " in place" : ""), std::move(arguments),
        [in_place](Tensors t) {
            return ScaleGradient{t[0], t[in_place ? 0 : 1], kScale};
        },
        [in_place](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) v[0][i] = scaled(v[in_place ? 0 : 1][i]);
        },
        Tolerance{}));
}

void add_graft_moments_row(std::vector<Row>& rows, std::int64_t n, bool square, float beta2, float square_factor) {
    std::vector<ArgumentOfRow> arguments{output("out", {n}), in_out("momentum", {n}), input("gradient", {n})};
    if (square) arguments.push_back(in_out("square", {n}, uniform(0.0, 1.0)));
    rows.push_back(row<GraftMoments>(
        sizes({{"n", n}}) + (square ? " square " + std::to_string(square_factor) : ""), std::move(arguments),
        [=](Tensors t) {
            return GraftMoments{.out = t[0],
                                .momentum = t[1],
                                .square = square ? t[3] : Tensor{},
                                .gradient = t[2],
                                .scale = kScale,
                                .beta2 = beta2,
                                .square_factor = square_factor};
        },
        [=](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) {
                const double g = v[0][i] = scaled(v[2][i]);
                v[1][i] = number(0.9F) * v[1][i] + number(0.1F) * g;
                if (square) v[3][i] = number(beta2) * v[3][i] + number(square_factor) * g * g;
            }
        },
        kTolerance));
}

void add_graft_direction_row(std::vector<Row>& rows, std::int64_t n, bool graft) {
    constexpr float kCorrection = 0.271F, kRoot = 0.4F, kEpsilon = 1e-3F;
    std::vector<ArgumentOfRow> arguments{output("average", {n}), input("momentum", {n})};
    if (graft) {
        arguments.push_back(output("graft", {n}));
        arguments.push_back(input("square", {n}, uniform(0.0, 1.0)));
    }
    rows.push_back(row<GraftDirection>(
        sizes({{"n", n}}) + (graft ? " with graft" : ""), std::move(arguments),
        [=](Tensors t) {
            return GraftDirection{.average = t[0],
                                  .graft = graft ? t[2] : Tensor{},
                                  .momentum = t[1],
                                  .square = graft ? t[3] : Tensor{},
                                  .correction = kCorrection,
                                  .root_correction = kRoot,
                                  .epsilon = kEpsilon};
        },
        [=](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) {
                v[0][i] = v[1][i] / number(kCorrection);
                if (graft) v[2][i] = v[0][i] / (std::sqrt(v[3][i]) / number(kRoot) + number(kEpsilon));
            }
        },
        kTolerance));
}

void add_eigenbasis_row(std::vector<Row>& rows, std::int64_t n, bool in_place) {
    constexpr float kCorrection = 0.271F, kRoot = 0.4F, kEpsilon = 1e-3F;
    std::vector<ArgumentOfRow> arguments{in_out("exp_avg", {n}), in_out("exp_avg_sq", {n}, uniform(0.0, 1.0)),
                                         in_place ? in_out("gradient", {n}) : input("gradient", {n})};
    if (!in_place) arguments.push_back(output("out", {n}));
    rows.push_back(row<EigenbasisMoments>(
        sizes({{"n", n}}) + (in_place ? " in place" : ""), std::move(arguments),
        [=](Tensors t) {
            return EigenbasisMoments{.out = t[in_place ? 2 : 3],
                                     .exp_avg = t[0],
                                     .exp_avg_sq = t[1],
                                     .gradient = t[2],
                                     .correction = kCorrection,
                                     .root_correction = kRoot,
                                     .epsilon = kEpsilon};
        },
        [=](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) {
                const double g = v[2][i];
                v[0][i] = number(0.95F) * v[0][i] + number(0.05F) * g;
                v[1][i] = number(0.95F) * v[1][i] + number(0.05F) * g * g;
                v[in_place ? 2 : 3][i] =
                    v[0][i] / number(kCorrection) / (std::sqrt(v[1][i]) / number(kRoot) + number(kEpsilon));
            }
        },
        kTolerance));
}

}  // namespace

std::vector<Row> moments_rows() {
    std::vector<Row> rows;
    for (const std::int64_t n : {1, 9, 1003, 40000}) {
        for (const bool in_place : {false, true}) {
            add_scale_row(rows, n, in_place);
            add_eigenbasis_row(rows, n, in_place);
        }
        add_graft_moments_row(rows, n, false, 1.0F, 1.0F);
        add_graft_moments_row(rows, n, true, 0.95F, 0.05F);
        add_graft_moments_row(rows, n, true, 1.0F, 1.0F);
        add_graft_direction_row(rows, n, false);
        add_graft_direction_row(rows, n, true);
    }
    return rows;
}

}  // namespace mfsdp::device::conformance
