// Sums whose order is promised, with values for which another order gives another result; and results that must not
// depend on where an element stands.

#include "mfsdp/device/cpu_device.h"

#include "device/transfers.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>

using namespace mfsdp::device;
using test::Bench;
using test::random_values;
using test::same_bits;

namespace {

constexpr float kLarge = 16777216.0F;  // 2^24: adding 1 to it changes nothing

Bench make_bench() { return Bench(make_cpu_device({.threads = 2})); }

}  // namespace

TEST_CASE("the gradient of an embedding adds the occurrences of a token in their order") {
    Bench bench = make_bench();
    // 2^24 + 1 - 2^24 is 0 from left to right; 1 + 2^24 - 2^24 too; 2^24 - 2^24 + 1 is 1.
    const Tensor grad_out = bench.send({kLarge, 1.0F, -kLarge, kLarge, -kLarge, 1.0F}).reshape({6, 1});
    const Tensor ids = bench.send<std::int32_t>(DType::int32, {1, 1, 1, 2, 2, 2});
    const Tensor grad_table = bench.reserve(DType::float32, 4).reshape({4, 1});
    launch(bench.stream(), EmbeddingBackward{grad_table, grad_out, ids});
    CHECK(bench.fetch(grad_table) == std::vector<float>{0.0F, 0.0F, 1.0F, 0.0F});
}

TEST_CASE("the gradient of position embeddings adds sequences in their order") {
    Bench bench = make_bench();
    const Tensor grad_x = bench.send({kLarge, kLarge, 1.0F, -kLarge, -kLarge, 1.0F}).reshape({3, 2, 1});
    const Tensor grad_positions = bench.reserve(DType::float32, 3).reshape({3, 1});
    launch(bench.stream(), PositionBackward{grad_positions, grad_x});
    CHECK(bench.fetch(grad_positions) == std::vector<float>{0.0F, 1.0F, 0.0F});
}

TEST_CASE("column sums add rows within blocks of 64 and then the blocks") {
    Bench bench = make_bench();
    std::vector<float> column(200, 0.0F);
    column[0] = kLarge;  // block 0: 2^24
    column[70] = 1.0F;   // block 1: 1 + 1 = 2, which 2^24 does feel; one at a time it would not
    column[71] = 1.0F;
    column[199] = -kLarge;
    const Tensor in = bench.send(column).reshape({200, 1});
    const Tensor out = bench.reserve(DType::float32, 1);
    launch(bench.stream(), ColumnSum{out, in});
    CHECK(bench.fetch(out) == std::vector<float>{2.0F});
}

TEST_CASE("gradients of the key and value of a group are sums over its heads in their order") {
    // One token, so weights are 1 and the value's gradient is the sum of the heads' gradients.
    Bench bench = make_bench();
    const Tensor ones = bench.send(std::vector<float>(3, 1.0F)).reshape({1, 1, 3, 1});
    const Tensor one = bench.send({1.0F}).reshape({1, 1, 1, 1});
    const Tensor grad_out = bench.send({kLarge, -kLarge, 1.0F}).reshape({1, 1, 3, 1});
    const Tensor out = bench.reserve(DType::float32, 3).reshape({1, 1, 3, 1});
    const Tensor statistics = bench.reserve(DType::float32, 3).reshape({1, 3, 1}),
                 delta = bench.reserve(DType::float32, 3).reshape({1, 3, 1});
    const Tensor grad_query = bench.reserve(DType::float32, 3).reshape({1, 1, 3, 1});
    const Tensor grad_key = bench.reserve(DType::float32, 1).reshape({1, 1, 1, 1}),
                 grad_value = bench.reserve(DType::float32, 1).reshape({1, 1, 1, 1});
    launch(bench.stream(), AttentionForward{out, statistics, ones, one, one, 1.0F});
    launch(bench.stream(),
           AttentionBackward{grad_query, grad_key, grad_value, delta, grad_out, out, statistics, ones, one, one, 1.0F});
    CHECK(bench.fetch(grad_value) == std::vector<float>{1.0F});
    CHECK(bench.fetch(grad_key) == std::vector<float>{0.0F});  // a single weight has no slope
}

TEST_CASE("activations have the same bits for an element at every offset and in every length") {
    constexpr std::int64_t kLongest = 1003;
    Bench bench = make_bench();
    std::vector<float> values = random_values(kLongest, 9);
    for (float& x : values) x *= 6.0F;
    const Tensor in = bench.send(values), up = bench.send(random_values(kLongest, 10));
    const Tensor out = bench.reserve(DType::float32, kLongest), gate = bench.reserve(DType::float32, kLongest);
    const auto run = [&](std::int64_t begin, std::int64_t size) {
        const auto part = [&](const Tensor& tensor) { return tensor.slice(0, begin, size); };
        launch(bench.stream(), GeluForward{part(out), part(in)});
        std::vector<float> result = bench.fetch(part(out));
        const auto keep = [&](const Tensor& tensor) {
            const std::vector<float> more = bench.fetch(part(tensor));
            result.insert(result.end(), more.begin(), more.end());
        };
        launch(bench.stream(), GeluBackward{part(out), part(up), part(in)});
        keep(out);
        launch(bench.stream(), SwiGluForward{part(out), part(in), part(up)});
        keep(out);
        launch(bench.stream(), SwiGluBackward{part(gate), part(out), part(up), part(in), part(up)});
        keep(gate);
        keep(out);
        return result;
    };
    const std::vector<float> whole = run(0, kLongest);
    const auto wanted = [&](std::int64_t begin, std::int64_t size) {
        std::vector<float> result;
        for (std::int64_t kind = 0; kind < 5; ++kind) {
            const auto from = whole.begin() + kind * kLongest + begin;
            result.insert(result.end(), from, from + size);
        }
        return result;
    };
    for (std::int64_t length = 1; length <= 40; ++length) REQUIRE(same_bits(run(0, length), wanted(0, length)));
    for (std::int64_t begin = 0; begin < 40; ++begin) {
        REQUIRE(same_bits(run(begin, kLongest - begin), wanted(begin, kLongest - begin)));
        REQUIRE(same_bits(run(begin, 13), wanted(begin, 13)));
    }
}

TEST_CASE("a row of LayerNorm and RmsNorm has the same bits alone and among others") {
    constexpr std::int64_t kRows = 21, kColumns = 77;
    Bench bench = make_bench();
    const Tensor in = bench.send(random_values(kRows * kColumns, 11)).reshape({kRows, kColumns});
    const Tensor weight = bench.send(random_values(kColumns, 12)), bias = bench.send(random_values(kColumns, 13));
    const Tensor mean = bench.reserve(DType::float32, kRows), reciprocal = bench.reserve(DType::float32, kRows);
    const Tensor out = bench.reserve(DType::float32, kRows * kColumns).reshape({kRows, kColumns});
    const auto run = [&](std::int64_t begin, std::int64_t rows) {
        const auto part = [&](const Tensor& tensor) { return tensor.slice(0, begin, rows); };
        launch(bench.stream(), LayerNormForward{part(out), part(mean), part(reciprocal), part(in), weight, bias});
        std::vector<float> result = bench.fetch(part(out));
        launch(bench.stream(), RmsNormForward{part(out), part(reciprocal), part(in), weight});
        const std::vector<float> more = bench.fetch(part(out));
        result.insert(result.end(), more.begin(), more.end());
        return result;
    };
    const std::vector<float> whole = run(0, kRows);
    for (std::int64_t row = 0; row < kRows; ++row) {
        const std::vector<float> alone = run(row, 1);
        std::vector<float> wanted(whole.begin() + row * kColumns, whole.begin() + (row + 1) * kColumns);
        const auto second = whole.begin() + (kRows + row) * kColumns;
        wanted.insert(wanted.end(), second, second + kColumns);
        REQUIRE(same_bits(alone, wanted));
    }
}

TEST_CASE("LayerNorm of a constant row is the bias, and of a row far from zero keeps its precision") {
    Bench bench = make_bench();
    std::vector<float> rows(2 * 64, 3.0F);
    for (std::size_t i = 64; i < 128; ++i) rows[i] = 10000.0F + (i % 2 == 0 ? 1.0F : -1.0F);
    const Tensor in = bench.send(rows).reshape({2, 64});
    const Tensor weight = bench.send(std::vector<float>(64, 2.0F)), bias = bench.send(std::vector<float>(64, 0.5F));
    const Tensor out = bench.reserve(DType::float32, 128).reshape({2, 64}), mean = bench.reserve(DType::float32, 2),
                 reciprocal = bench.reserve(DType::float32, 2);
    launch(bench.stream(), LayerNormForward{out, mean, reciprocal, in, weight, bias, 1e-5F});
    const std::vector<float> found = bench.fetch(out);
    REQUIRE(found.size() == 128);
    for (std::size_t i = 0; i < 64; ++i) CHECK(found[i] == 0.5F);
    for (std::size_t i = 64; i < 128; ++i) CHECK(found[i] == Approx(i % 2 == 0 ? 2.5 : -1.5).epsilon(1e-5));
}
