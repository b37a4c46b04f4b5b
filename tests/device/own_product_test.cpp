#include "../../src/device/cpu/product.h"
#include "device/transfers.h"
#include "support/catch.h"

#include <cmath>

namespace mfsdp::device::cpu {

namespace {

using device::test::random_values;
using device::test::same_bits;

struct Case {
    std::int64_t rows, columns, inner;
    bool transpose_a = false, transpose_b = false;
    float alpha = 1.0F, beta = 0.0F;
};

template <class T>
std::vector<T> rounded_values(std::int64_t count, std::uint64_t seed) {
    std::vector<T> values;
    for (const float value : random_values(count, seed)) values.push_back(rounded<T>(value));
    return values;
}

template <class T>
void multiply_by_our_kernel(const Product<T>& product, const Result<float>& result) {
    multiply_by_own_kernel(product, result, nullptr);
}

/// The part [row, row + rows) x [column, column + columns) of the whole product c.
template <class T>
void multiply_part(Multiply<T>* multiply, const Case& whole, const std::vector<T>& a, const std::vector<T>& b,
                   std::vector<float>& c, std::int64_t row, std::int64_t rows, std::int64_t column,
                   std::int64_t columns) {
    const std::int64_t a_stride = whole.transpose_a ? whole.rows : whole.inner;
    const std::int64_t b_stride = whole.transpose_b ? whole.inner : whole.columns;
    Product<T> product;
    product.rows = rows;
    product.columns = columns;
    product.inner = whole.inner;
    product.a = {a.data() + (whole.transpose_a ? row : row * a_stride), a_stride, whole.transpose_a};
    product.b = {b.data() + (whole.transpose_b ? column * b_stride : column), b_stride, whole.transpose_b};
    product.alpha = whole.alpha;
    product.beta = whole.beta;
    multiply(product, {c.data() + row * whole.columns + column, whole.columns});
}

template <class T>
void check_against_loops(const Case& t, Multiply<T>* multiply) {
    const std::vector<T> a = rounded_values<T>(t.rows * t.inner, 1), b = rounded_values<T>(t.inner * t.columns, 2);
    const std::vector<float> before = t.beta == 0.0F
                                          ? std::vector<float>(static_cast<std::size_t>(t.rows * t.columns), NAN)
                                          : random_values(t.rows * t.columns, 3);
    std::vector<float> c = before;
    multiply_part(multiply, t, a, b, c, 0, t.rows, 0, t.columns);
    double worst = 0.0;
    for (std::int64_t i = 0; i < t.rows; ++i) {
        for (std::int64_t j = 0; j < t.columns; ++j) {
            double sum = 0.0, magnitude = 0.0;
            for (std::int64_t p = 0; p < t.inner; ++p) {
                const auto left = static_cast<double>(
                    widened(a[static_cast<std::size_t>(t.transpose_a ? p * t.rows + i : i * t.inner + p)]));
                const auto right = static_cast<double>(
                    widened(b[static_cast<std::size_t>(t.transpose_b ? j * t.inner + p : p * t.columns + j)]));
                sum += left * right;
                magnitude += std::abs(left * right);
            }
            const auto at = static_cast<std::size_t>(i * t.columns + j);
            const double old = t.beta == 0.0F ? 0.0 : static_cast<double>(t.beta) * static_cast<double>(before[at]);
            const double error = std::abs(static_cast<double>(c[at]) - static_cast<double>(t.alpha) * sum - old);
            worst = std::max(worst, error / (std::abs(static_cast<double>(t.alpha)) * magnitude + std::abs(old)));
            if (std::isnan(c[at])) worst = INFINITY;
        }
    }
    INFO(t.rows << " x " << t.columns << " x " << t.inner << " worst error " << worst);
    CHECK(worst < 1e-6);
}

/// Every transposition, and extents below, at and above those of tiles and blocks.
template <class T>
void check_all_against_loops(Multiply<T>* multiply) {
    for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
            for (const Case& t : {Case{1, 1, 1}, Case{5, 15, 7}, Case{6, 16, 8}, Case{7, 17, 9}, Case{13, 40, 300},
                                  Case{100, 200, 257}, Case{97, 193, 520}}) {
                check_against_loops({t.rows, t.columns, t.inner, transpose_a, transpose_b}, multiply);
                check_against_loops({t.rows, t.columns, t.inner, transpose_a, transpose_b, 0.5F, 1.0F}, multiply);
                check_against_loops({t.rows, t.columns, t.inner, transpose_a, transpose_b, -2.0F, 0.3F}, multiply);
            }
        }
    }
}

template <class T>
void check_cuts(bool transpose_a) {
    const Case whole{101, 205, 333, transpose_a, false, 1.0F, 0.0F};
    const std::vector<T> a = rounded_values<T>(whole.rows * whole.inner, 4);
    const std::vector<T> b = rounded_values<T>(whole.inner * whole.columns, 5);
    std::vector<float> at_once(static_cast<std::size_t>(whole.rows * whole.columns)), in_parts = at_once;
    multiply_part(&multiply_by_our_kernel<T>, whole, a, b, at_once, 0, whole.rows, 0, whole.columns);
    for (const std::int64_t row : {0, 3, 50}) {
        const std::int64_t row_end = row == 0 ? 3 : row == 3 ? 50 : whole.rows;
        for (const std::int64_t column : {0, 1, 130}) {
            const std::int64_t column_end = column == 0 ? 1 : column == 1 ? 130 : whole.columns;
            multiply_part(&multiply_by_our_kernel<T>, whole, a, b, in_parts, row, row_end - row, column,
                          column_end - column);
        }
    }
    CHECK(same_bits(at_once, in_parts));
}

}  // namespace

TEST_CASE("our own product agrees with a double loop for every type, transposition, extent and factor") {
    check_all_against_loops<float>(&multiply_by_our_kernel<float>);
    check_all_against_loops<BFloat16>(&multiply_by_our_kernel<BFloat16>);
    check_all_against_loops<Float16>(&multiply_by_our_kernel<Float16>);
}

TEST_CASE("oneDNN's product of any types agrees with a double loop, for bfloat16 where the processor has it") {
    if (!has_onednn()) {
        WARN("skipped: this program was built without oneDNN");
        return;
    }
    check_all_against_loops<float>(&multiply_by_onednn_primitive<float>);
    if (has_onednn_bfloat16()) {
        check_all_against_loops<BFloat16>(&multiply_by_onednn_primitive<BFloat16>);
    } else {
        WARN("bfloat16 by oneDNN skipped: this processor has no instructions for it");
    }
}

TEST_CASE("an element of one of our own products has the same bits wherever the product is cut") {
    for (const bool transpose_a : {false, true}) {
        check_cuts<float>(transpose_a);
        check_cuts<BFloat16>(transpose_a);
    }
}

TEST_CASE("our own product of 16-bit elements has the bits of the product of the widened ones") {
    for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
            const Case t{97, 193, 520, transpose_a, transpose_b, 0.5F, 0.25F};
            const auto a = rounded_values<BFloat16>(t.rows * t.inner, 6);
            const auto b = rounded_values<BFloat16>(t.inner * t.columns, 7);
            std::vector<float> wide_a, wide_b, c = random_values(t.rows * t.columns, 8), wide_c = c;
            for (const BFloat16 element : a) wide_a.push_back(widened(element));
            for (const BFloat16 element : b) wide_b.push_back(widened(element));
            multiply_part(&multiply_by_our_kernel<BFloat16>, t, a, b, c, 0, t.rows, 0, t.columns);
            multiply_part(&multiply_by_our_kernel<float>, t, wide_a, wide_b, wide_c, 0, t.rows, 0, t.columns);
            CHECK(same_bits(c, wide_c));
        }
    }
}

}  // namespace mfsdp::device::cpu
