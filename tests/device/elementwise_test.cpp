#include "mfsdp/device/ops/elementwise.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/cpu_device.h"

#include "device/transfers.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace mfsdp::device {

namespace {

using test::Bench;
using test::random_values;
using test::same_bits;

/// Runs `issue` on the first `count` elements of two arrays at an address off by `offset` elements.
std::vector<float> run(Bench& bench, std::int64_t count, std::int64_t offset, const std::vector<float>& a,
                       const std::vector<float>& b, const std::function<void(Stream&, Tensor, Tensor, Tensor)>& issue) {
    const Tensor out = bench.reserve(DType::float32, count, offset);
    issue(bench.stream(), out, bench.send(a, offset).slice(0, 0, count), bench.send(b, offset).slice(0, 0, count));
    return bench.fetch(out);
}

}  // namespace

TEST_CASE("an element's bits do not depend on the length of the tensor, its place in it or its alignment") {
    constexpr std::int64_t kLongest = 1003;
    const std::vector<float> a = random_values(kLongest, 1), b = random_values(kLongest, 2);
    const std::vector<std::function<void(Stream&, Tensor, Tensor, Tensor)>> operations{
        [](Stream& s, Tensor out, Tensor x, Tensor y) {
            launch(s, Add{out, x, y});
        },
        [](Stream& s, Tensor out, Tensor x, Tensor y) {
            launch(s, ScaledAdd{out, x, y, 0.3F, -0.7F});
        },
        [](Stream& s, Tensor out, Tensor x, Tensor) {
            launch(s, ScaledAdd{out, x, {}, 0.3F, 0.0F});
        },
        [](Stream& s, Tensor out, Tensor x, Tensor) {
            launch(s, Copy{out, x});
        },
        [](Stream& s, Tensor out, Tensor, Tensor) {
            launch(s, FillNormal{out, 9, 0, 1.0});
        },
    };
    for (const auto& operation : operations) {
        Bench bench(make_cpu_device({}));
        const std::vector<float> whole = run(bench, kLongest, 0, a, b, operation);
        bool all_same = true;
        for (std::int64_t count = 1; count <= kLongest; ++count) {
            std::vector<float> part = run(bench, count, count % 8, a, b, operation);
            all_same = all_same && same_bits(part, std::vector<float>(whole.begin(), whole.begin() + count));
        }
        CHECK(all_same);
    }
}

TEST_CASE("scaled addition rounds the second product once and the sum once") {
    const float alpha = 1.0F + 0x1p-12F, beta = -1.0F;
    // alpha^2 = 1 + 2^-11 + 2^-24; the float product loses the last term, fused addition keeps it.
    Bench bench(make_cpu_device({}));
    const Tensor a = bench.send(std::vector<float>{alpha});
    const Tensor b = bench.send(std::vector<float>{1.0F + 0x1p-11F});
    launch(bench.stream(), ScaledAdd{a, a, b, alpha, beta});
    CHECK(bench.fetch(a) == std::vector<float>{0x1p-24F});
}

TEST_CASE("large elementwise operations have the same bits for any number of threads") {
    constexpr std::int64_t kCount = 100003;
    const std::vector<float> a = random_values(kCount, 3), b = random_values(kCount, 4);
    std::vector<std::vector<float>> first;
    for (const int threads : {1, 2, 3, 4, 8}) {
        Bench bench(make_cpu_device({.threads = threads}));
        const Tensor x = bench.send(a), y = bench.send(b);
        std::vector<std::vector<float>> results;
        const Tensor out = bench.reserve(DType::float32, kCount);
        launch(bench.stream(), Add{out, x, y});
        results.push_back(bench.fetch(out));
        launch(bench.stream(), ScaledAdd{out, x, y, 1.1F, 2.2F});
        results.push_back(bench.fetch(out));
        launch(bench.stream(), FillNormal{out, 5, 77, 0.02});
        results.push_back(bench.fetch(out));
        launch(bench.stream(),
               Transpose{out.slice(0, 0, 300 * 333).reshape({333, 300}), x.slice(0, 0, 300 * 333).reshape({300, 333})});
        results.push_back(bench.fetch(out));
        if (first.empty()) first = results;
        for (std::size_t i = 0; i < results.size(); ++i) CHECK(same_bits(results[i], first[i]));
    }
}

TEST_CASE("normal values have mean 0, deviation 1 and normal tails, and neighbours are independent") {
    constexpr std::int64_t kCount = 1 << 20;
    Bench bench(make_cpu_device({.threads = 2}));
    const Tensor out = bench.reserve(DType::float32, kCount);
    launch(bench.stream(), FillNormal{out, 123, 0, 1.0});
    const std::vector<float> values = bench.fetch(out);
    double sum = 0.0, squares = 0.0, fourth = 0.0, neighbours = 0.0;
    std::int64_t beyond_one = 0, beyond_three = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto z = static_cast<double>(values[i]);
        sum += z;
        squares += z * z;
        fourth += z * z * z * z;
        if (i > 0) neighbours += z * static_cast<double>(values[i - 1]);
        beyond_one += std::abs(z) > 1.0 ? 1 : 0;
        beyond_three += std::abs(z) > 3.0 ? 1 : 0;
    }
    // Five standard errors of each statistic of 2^20 independent values.
    const double n = static_cast<double>(kCount), error = 5.0 / std::sqrt(n);
    CHECK(std::abs(sum / n) < error);
    CHECK(std::abs(squares / n - 1.0) < error * std::sqrt(2.0));
    CHECK(std::abs(fourth / n - 3.0) < error * std::sqrt(96.0));
    CHECK(std::abs(neighbours / n) < error);
    CHECK(std::abs(static_cast<double>(beyond_one) / n - 0.317311) < error * 0.466);
    CHECK(std::abs(static_cast<double>(beyond_three) / n - 0.0026998) < error * 0.052);
}

TEST_CASE("normal values do not depend on how a parameter is cut, and other keys give other values") {
    constexpr std::int64_t kCount = 5000;
    Bench bench(make_cpu_device({.threads = 3}));
    const Tensor whole = bench.reserve(DType::float32, kCount), parts = bench.reserve(DType::float32, kCount);
    launch(bench.stream(), FillNormal{whole, 7, 100, 0.5});
    for (const std::int64_t begin : {0, 1, 1000, 3333}) {
        const std::int64_t end = begin == 0 ? 1 : begin == 1 ? 1000 : begin == 1000 ? 3333 : kCount;
        launch(bench.stream(), FillNormal{parts.slice(0, begin, end - begin), 7, 100 + begin, 0.5});
    }
    CHECK(same_bits(bench.fetch(whole), bench.fetch(parts)));
    launch(bench.stream(), FillNormal{parts, 8, 100, 0.5});
    const std::vector<float> one = bench.fetch(whole), other = bench.fetch(parts);
    double product = 0.0;
    for (std::size_t i = 0; i < one.size(); ++i) product += static_cast<double>(one[i]) * static_cast<double>(other[i]);
    CHECK(std::abs(product / (0.25 * kCount)) < 5.0 / std::sqrt(static_cast<double>(kCount)));
}

TEST_CASE("a fill converts its value to the type, and a copy moves or converts any type") {
    Bench bench(make_cpu_device({}));
    const Tensor integers = bench.reserve(DType::int64, 3);
    launch(bench.stream(), Fill{integers, -9007199254740992.0});
    CHECK(bench.fetch<std::int64_t>(integers) == std::vector<std::int64_t>(3, -9007199254740992));
    const std::vector<std::uint16_t> halves{1, 2, 3, 4, 5, 6};
    const Tensor in = bench.send(DType::bfloat16, halves).reshape({2, 3});
    const Tensor out = bench.reserve(DType::bfloat16, 8).reshape({2, 4});
    launch(bench.stream(), CopyFromHost{out, std::vector<std::uint16_t>(8, 0).data()});
    launch(bench.stream(), Copy{out.slice(1, 1, 3), in});
    CHECK(bench.fetch<std::uint16_t>(out) == std::vector<std::uint16_t>{0, 1, 2, 3, 0, 4, 5, 6});

    // Rows of in and out lie apart by different numbers of elements.
    const Tensor floats = bench.send(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}).reshape({2, 5});
    launch(bench.stream(), Fill{out, 0.0});
    launch(bench.stream(), Copy{out.slice(1, 1, 3), floats.slice(1, 2, 3)});
    const Tensor back = bench.reserve(DType::float32, 8);
    launch(bench.stream(), Copy{back.reshape({2, 4}), out});
    CHECK(bench.fetch(back) == std::vector<float>{0, 3, 4, 5, 0, 8, 9, 10});
}

TEST_CASE("costs of elementwise operations count the bytes of each tensor by its type") {
    Bench bench(make_cpu_device({}));
    const Tensor single = bench.reserve(DType::float32, 10), half = bench.reserve(DType::bfloat16, 10);
    CHECK(Copy{single, half}.cost().bytes == 60);
    CHECK(Copy{half, half}.cost().bytes == 40);
    CHECK(Add{single, single, half}.cost().bytes == 100);
    CHECK(ScaledAdd{half, half, single}.cost().bytes == 80);
    CHECK(ScaledAdd{half, single, {}}.cost().bytes == 60);
    CHECK(Fill{half, 1.0}.cost().bytes == 20);
    CHECK(Transpose{half.reshape({5, 2}), half.reshape({2, 5})}.cost().bytes == 40);
}

TEST_CASE("elementwise operations refuse wrong types, shapes and layouts") {
    Bench bench(make_cpu_device({}));
    const Tensor six = bench.reserve(DType::float32, 6), other = bench.reserve(DType::float32, 6);
    const Tensor seven = bench.reserve(DType::float32, 7), doubles = bench.reserve(DType::float64, 6);
    const Tensor halves = bench.reserve(DType::bfloat16, 6), integers = bench.reserve(DType::int32, 6);
    Tensor reinterpreted = six;
    reinterpreted.dtype = DType::bfloat16;
    const Tensor strided = bench.reserve(DType::float32, 12).reshape({2, 6}).slice(1, 0, 3);
    CHECK_THROWS_AS((Fill{strided, 0.0}.check()), InternalError);
    CHECK_THROWS_WITH((Copy{six, seven}.check()),
                      Catch::Contains("float32 [6], wanted") && Catch::Contains("float32 [7]"));
    CHECK_THROWS_AS((Copy{six, doubles}.check()), InternalError);
    CHECK_THROWS_AS((Copy{six, integers}.check()), InternalError);
    CHECK_THROWS_AS((Copy{integers, halves}.check()), InternalError);
    CHECK_THROWS_AS((Copy{six, six}.check()), InternalError);
    CHECK_THROWS_AS((Copy{six, reinterpreted}.check()), InternalError);
    CHECK_THROWS_AS((Add{six, seven, six}.check()), InternalError);
    CHECK_THROWS_AS((Add{six, other, doubles}.check()), InternalError);
    CHECK_THROWS_AS((Add{integers, integers, integers}.check()), InternalError);
    CHECK_NOTHROW(Add{six, other, halves}.check());
    CHECK_THROWS_AS((Add{six, other, reinterpreted}.check()), InternalError);
    CHECK_THROWS_AS((Add{reinterpreted, six, other}.check()), InternalError);
    CHECK_THROWS_AS((Add{strided, strided, strided}.check()), InternalError);
    CHECK_THROWS_AS((ScaledAdd{six, seven, six}.check()), InternalError);
    CHECK_THROWS_AS((ScaledAdd{six, six, seven}.check()), InternalError);
    CHECK_THROWS_AS((ScaledAdd{six, reinterpreted, other}.check()), InternalError);
    CHECK_NOTHROW(ScaledAdd{halves, six, halves}.check());
    CHECK_THROWS_AS((Transpose{six.reshape({2, 3}), other.reshape({2, 3})}.check()), InternalError);
    CHECK_THROWS_AS((Transpose{six.reshape({3, 2}), six.reshape({2, 3})}.check()), InternalError);
    CHECK_THROWS_AS((Transpose{six.reshape({3, 2}), halves.reshape({2, 3})}.check()), InternalError);
    CHECK_THROWS_AS((Transpose{integers.reshape({3, 2}), integers.reshape({2, 3})}.check()), InternalError);
    CHECK_THROWS_AS((CopyFromHost{six, nullptr}.check()), InternalError);
    CHECK_THROWS_AS((CopyToHost{nullptr, six}.check()), InternalError);
    CHECK_THROWS_AS((FillNormal{doubles, 1, 0, 1.0}.check()), InternalError);
    CHECK_THROWS_AS((FillNormal{bench.reserve(DType::float16, 6), 1, 0, 1.0}.check()), InternalError);
    CHECK_THROWS_AS((FillNormal{six, 1, -1, 1.0}.check()), InternalError);
    Tensor nowhere = six;
    nowhere.data = nullptr;
    CHECK_THROWS_AS((Add{nowhere, six, six}.check()), InternalError);
    CHECK_THROWS_AS(launch(bench.stream(), Add{six, seven, six}), InternalError);
}

}  // namespace mfsdp::device
