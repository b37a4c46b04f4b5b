#include "mfsdp/device/ops/elementwise.h"

#include "device/conformance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace mfsdp::device::conformance {

namespace {

using Size = std::size_t;

std::string text(std::int64_t n) { return sizes({{"n", n}}); }

void add_fill_row(std::vector<Row>& rows, std::int64_t n, DType dtype, double value) {
    rows.push_back(row<device::Fill>(
        text(n) + " " + std::string(name(dtype)), {output("out", {n}, Gaps::forbidden, dtype)},
        [value](Tensors t) {
            return device::Fill{t[0], value};
        },
        [value](Values& v) { std::fill(v[0].begin(), v[0].end(), value); }, Tolerance{}));
}

std::string dimensions(const Shape& shape) {
    std::string text;
    for (const std::int64_t size : shape) text.append(text.empty() ? "" : " ").append(std::to_string(size));
    return text;
}

void add_copy_row(std::vector<Row>& rows, const Shape& shape, DType from, DType to) {
    // Values that no rounding changes where nothing is rounded, else some that all types round.
    const Filling filling = from == to ? integers(-1000, 1000) : normal();
    rows.push_back(row<Copy>(
        dimensions(shape).append(" ").append(name(from)).append(" ").append(name(to)),
        {input("in", shape, filling, Gaps::allowed, from), output("out", shape, Gaps::allowed, to)},
        [](Tensors t) {
            return Copy{t[1], t[0]};
        },
        [](Values& v) { v[1] = v[0]; }, Tolerance{}));
}

/// Types of out, a and b.
struct Types {
    DType out = DType::float32, a = DType::float32, b = DType::float32;
    [[nodiscard]] std::string text() const { return suffix({out, a, b}); }
    [[nodiscard]] ArgumentOfRow in_a(std::int64_t n) const { return input("a", {n}, normal(), Gaps::forbidden, a); }
    [[nodiscard]] ArgumentOfRow in_b(std::int64_t n) const { return input("b", {n}, normal(), Gaps::forbidden, b); }
    [[nodiscard]] ArgumentOfRow result(std::int64_t n) const { return output("out", {n}, Gaps::forbidden, out); }
};

void add_sum_row(std::vector<Row>& rows, std::int64_t n, const Types& types) {
    rows.push_back(row<Add>(
        text(n) + types.text(), {types.in_a(n), types.in_b(n), types.result(n)},
        [](Tensors t) {
            return Add{t[2], t[0], t[1]};
        },
        [](Values& v) {
            for (Size i = 0; i < v[2].size(); ++i) v[2][i] = v[0][i] + v[1][i];
        },
        Tolerance{}));
}

/// The sum takes the place of a, which has the type of the result.
void add_sum_in_place_row(std::vector<Row>& rows, std::int64_t n, DType a, DType b) {
    rows.push_back(row<Add>(
        text(n) + " in place" + suffix({a, b}),
        {in_out("a", {n}, normal(), Gaps::forbidden, a), input("b", {n}, normal(), Gaps::forbidden, b)},
        [](Tensors t) {
            return Add{t[0], t[0], t[1]};
        },
        [](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) v[0][i] += v[1][i];
        },
        Tolerance{}));
}

constexpr float kAlpha = 0.3F, kBeta = -1.7F;

double scaled_sum(double a, double b) {
    // beta b is rounded to float32 first; alpha a is exact in double.
    return static_cast<double>(kAlpha) * a + static_cast<double>(kBeta * static_cast<float>(b));
}

void add_scaled_sum_rows(std::vector<Row>& rows, std::int64_t n, const Types& types) {
    rows.push_back(row<ScaledAdd>(
        text(n) + types.text(), {types.in_a(n), types.in_b(n), types.result(n)},
        [](Tensors t) {
            return ScaledAdd{t[2], t[0], t[1], kAlpha, kBeta};
        },
        [](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) v[2][i] = scaled_sum(v[0][i], v[1][i]);
        },
        Tolerance{}));
    rows.push_back(row<ScaledAdd>(
        text(n) + " in place" + types.text(), {types.in_a(n), in_out("b", {n}, normal(), Gaps::forbidden, types.b)},
        [](Tensors t) {
            return ScaledAdd{t[1], t[0], t[1], kAlpha, kBeta};
        },
        [](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) v[1][i] = scaled_sum(v[0][i], v[1][i]);
        },
        Tolerance{}));
    rows.push_back(row<ScaledAdd>(
        text(n) + " without b" + types.text(), {types.in_a(n), types.result(n)},
        [](Tensors t) {
            return ScaledAdd{t[1], t[0], {}, kAlpha, 5.0F};
        },
        [](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) v[1][i] = static_cast<double>(kAlpha) * v[0][i];
        },
        Tolerance{}));
}

void add_transpose_row(std::vector<Row>& rows, std::int64_t m, std::int64_t n, DType dtype) {
    rows.push_back(row<Transpose>(
        sizes({{"m", m}, {"n", n}}) + suffix({dtype}),
        {input("in", {m, n}, normal(), Gaps::allowed, dtype), output("out", {n, m}, Gaps::allowed, dtype)},
        [](Tensors t) {
            return Transpose{t[1], t[0]};
        },
        [height = static_cast<Size>(m), width = static_cast<Size>(n)](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) v[1][i % width * height + i / width] = v[0][i];
        },
        Tolerance{}));
}

/// Host memory is not an argument: the rows go through vectors of their own.
void add_host_rows(std::vector<Row>& rows, std::int64_t n) {
    const auto source = std::make_shared<std::vector<float>>();
    for (std::int64_t i = 0; i < n; ++i) source->push_back(static_cast<float>(i) * 0.5F - 3.0F);
    rows.push_back(row<CopyFromHost>(
        text(n), {output("out", {n})},
        [source](Tensors t) {
            return CopyFromHost{t[0], source->data()};
        },
        [source](Values& v) { std::copy(source->begin(), source->end(), v[0].begin()); }, Tolerance{}));

    const auto target = std::make_shared<std::vector<float>>(static_cast<Size>(n));
    Row back = row<CopyToHost>(
        text(n), {input("in", {n}), output("out", {n})},
        [target](Tensors t) {
            return CopyToHost{target->data(), t[0]};
        },
        [](Values& v) { v[1] = v[0]; }, Tolerance{});
    back.launch = [target, to_host = back.launch](Stream& stream, Tensors t) {
        to_host(stream, t);
        stream.synchronize();
        launch(stream, CopyFromHost{t[1], target->data()});
    };
    rows.push_back(std::move(back));
}

std::uint64_t split_mix(std::uint64_t word) {
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9ULL;
    word = (word ^ word >> 27) * 0x94D049BB133111EBULL;
    return word ^ word >> 31;
}

/// Box and Muller of the words 2i + 1 and 2i + 2 of SplitMix64 seeded with the mixed key.
double normal_value(std::uint64_t key, std::uint64_t index) {
    const auto word = [&](std::uint64_t number) {
        return static_cast<long double>(split_mix(split_mix(key) + number * 0x9E3779B97F4A7C15ULL) >> 11);
    };
    const long double radius = std::sqrt(-2.0L * std::log((word(2 * index + 1) + 1.0L) * 0x1p-53L));
    return static_cast<double>(radius *
                               std::cos(2.0L * std::numbers::pi_v<long double> * word(2 * index + 2) * 0x1p-53L));
}

void add_normal_row(std::vector<Row>& rows, std::int64_t n, std::int64_t first, DType dtype = DType::float32) {
    constexpr std::uint64_t kKey = 0x1234567890ABCDEFU;
    constexpr double kDeviation = 0.02;
    rows.push_back(row<FillNormal>(
        sizes({{"n", n}, {"first", first}}) + suffix({dtype}), {output("out", {n}, Gaps::forbidden, dtype)},
        [first](Tensors t) {
            return FillNormal{t[0], kKey, first, kDeviation};
        },
        [first](Values& v) {
            for (Size i = 0; i < v[0].size(); ++i) {
                v[0][i] = kDeviation * normal_value(kKey, static_cast<std::uint64_t>(first) + i);
            }
        },
        Tolerance{.of_value = 1e-7}));
}

constexpr std::array kFloats{DType::float32, DType::bfloat16, DType::float16};

/// Every mix of types at one odd size, and the mixes that training and the optimizers use at larger ones.
void add_rows_of_types(std::vector<Row>& rows) {
    for (const DType out : kFloats) {
        for (const DType a : kFloats) {
            for (const DType b : kFloats) {
                add_sum_row(rows, 29, {out, a, b});
                add_scaled_sum_rows(rows, 29, {out, a, b});
            }
            add_sum_in_place_row(rows, 29, out, a);
            add_copy_row(rows, {19}, out, a);
            add_copy_row(rows, {2, 3, 4, 9}, out, a);
        }
        add_fill_row(rows, 9, out, 0.3);
        for (const std::int64_t m : {1, 5, 70}) {
            add_transpose_row(rows, m, 1, out);
            add_transpose_row(rows, m, 33, out);
            add_transpose_row(rows, m, 128, out);
        }
    }
    for (const std::int64_t n : {1, 1003, 40000}) {
        add_sum_row(rows, n, {});
        add_sum_in_place_row(rows, n, DType::float32, DType::float32);
        add_sum_in_place_row(rows, n, DType::float32, DType::bfloat16);   // a leaf added to its sum
        add_sum_in_place_row(rows, n, DType::bfloat16, DType::bfloat16);  // the residual stream
        add_scaled_sum_rows(rows, n, {});
        add_scaled_sum_rows(rows, n, {DType::bfloat16, DType::bfloat16, DType::bfloat16});
        add_copy_row(rows, {n}, DType::float32, DType::bfloat16);
        add_copy_row(rows, {n}, DType::bfloat16, DType::float32);
    }
}

}  // namespace

std::vector<Row> elementwise_rows() {
    std::vector<Row> rows;
    for (const std::int64_t n : {1, 7, 1003, 40000}) {
        add_fill_row(rows, n, DType::float32, -2.5);
        add_fill_row(rows, n, DType::int64, 77.0);
        add_host_rows(rows, n);
        add_normal_row(rows, n, n == 7 ? 1000003 : 0);
    }
    add_normal_row(rows, 5000, 3, DType::bfloat16);
    add_fill_row(rows, 5, DType::float64, 0.1);
    add_fill_row(rows, 5, DType::int32, -100.0);
    for (const DType dtype : {DType::float32, DType::float64, DType::int32, DType::int64, DType::bfloat16}) {
        add_copy_row(rows, {9}, dtype, dtype);
        add_copy_row(rows, {5, 7}, dtype, dtype);
        add_copy_row(rows, {2, 3, 4, 5}, dtype, dtype);
    }
    add_copy_row(rows, {3, 30001}, DType::float32, DType::float32);
    add_copy_row(rows, {3, 30001}, DType::float32, DType::bfloat16);
    add_rows_of_types(rows);
    std::vector<Row> none;
    add_fill_row(none, 0, DType::float32, 1.0);
    add_sum_row(none, 0, {});
    add_sum_in_place_row(none, 0, DType::float32, DType::bfloat16);
    add_scaled_sum_rows(none, 0, {});
    add_transpose_row(none, 0, 4, DType::float32);
    add_copy_row(none, {0, 3}, DType::float32, DType::float32);
    add_copy_row(none, {0, 3}, DType::float32, DType::bfloat16);
    add_normal_row(none, 0, 0);
    for (Row& empty : none) rows.push_back(allow_empty(std::move(empty)));
    return rows;
}

}  // namespace mfsdp::device::conformance
