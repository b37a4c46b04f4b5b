#include "mfsdp/device/ops/matmul.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/cpu_device.h"

#include "../../src/device/cpu/panels.h"
#include "../../src/device/cpu/product.h"
#include "device/transfers.h"
#include "support/catch.h"

#include <cmath>
#include <limits>

namespace mfsdp::device {

namespace {

using test::Bench;
using test::random_values;
using test::same_bits;

/// Every way of computing products that this program has.
std::vector<ProductKernel> kernels() {
    if (cpu::has_onednn()) return {ProductKernel::own, ProductKernel::onednn};
    return {ProductKernel::own};
}

struct Sides {
    std::int64_t m, n, k;
    bool transpose_a = false, transpose_b = false;
};

Tensor as_matrix(const Tensor& values, std::int64_t rows, std::int64_t columns, bool transposed) {
    return transposed ? values.reshape({columns, rows}) : values.reshape({rows, columns});
}

std::vector<float> multiply(ProductKernel kernel, int threads, const Sides& s, const std::vector<float>& a,
                            const std::vector<float>& b, std::int64_t offset = 0) {
    Bench bench(make_cpu_device({.threads = threads, .products = kernel}));
    const Tensor out = bench.reserve(DType::float32, s.m * s.n, offset).reshape({s.m, s.n});
    launch(bench.stream(), Matmul{out,
                                  as_matrix(bench.send(a, offset), s.m, s.k, s.transpose_a),
                                  as_matrix(bench.send(b, 2 * offset), s.k, s.n, s.transpose_b),
                                  s.transpose_a,
                                  s.transpose_b,
                                  1.0F,
                                  0.0F,
                                  {}});
    return bench.fetch(out);
}

/// One element of the product, and the sum of the magnitudes of its terms (what rounding errors are measured by).
struct Element {
    double value = 0.0, magnitude = 0.0;
};

Element element(const Sides& s, const std::vector<float>& a, const std::vector<float>& b, std::int64_t i,
                std::int64_t j) {
    Element result;
    for (std::int64_t p = 0; p < s.k; ++p) {
        const double left = static_cast<double>(a[static_cast<std::size_t>(s.transpose_a ? p * s.m + i : i * s.k + p)]);
        const double right =
            static_cast<double>(b[static_cast<std::size_t>(s.transpose_b ? j * s.k + p : p * s.n + j)]);
        result.value += left * right;
        result.magnitude += std::abs(left * right);
    }
    return result;
}

}  // namespace

TEST_CASE("weight gradients over many tokens have the same bits for 1, 2, 3, 4 and 8 threads") {
    const auto kernel = GENERATE(from_range(kernels()));
    for (const std::int64_t tokens : {4096, 16384}) {
        for (const Sides& s : {Sides{16, 16, tokens, true}, Sides{64, 256, tokens, true}, Sides{256, 64, tokens, true},
                               Sides{48, 200, tokens, true}, Sides{256, 256, tokens, true}}) {
            INFO(s.m << " x " << s.n << ", " << tokens << " tokens");
            const std::vector<float> a = random_values(s.m * s.k, 1), b = random_values(s.k * s.n, 2);
            const std::vector<float> one = multiply(kernel, 1, s, a, b);
            for (const int threads : {2, 3, 4, 8}) CHECK(same_bits(multiply(kernel, threads, s, a, b), one));
            for (const std::int64_t at : {std::int64_t{0}, s.m * s.n / 3, s.m * s.n - 1}) {
                const Element wanted = element(s, a, b, at / s.n, at % s.n);
                CHECK(std::abs(static_cast<double>(one[static_cast<std::size_t>(at)]) - wanted.value) <
                      1e-6 * wanted.magnitude);
            }
        }
    }
}

TEST_CASE("products of many panels agree with a double loop, for any number of threads and any alignment") {
    const auto kernel = GENERATE(from_range(kernels()));
    for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
            const Sides s{600, 500, 90, transpose_a, transpose_b};
            const std::vector<float> a = random_values(s.m * s.k, 3), b = random_values(s.k * s.n, 4);
            const std::vector<float> one = multiply(kernel, 1, s, a, b);
            std::int64_t wrong = 0;
            for (std::int64_t at = 0; at < s.m * s.n; ++at) {
                const Element wanted = element(s, a, b, at / s.n, at % s.n);
                const double error = std::abs(static_cast<double>(one[static_cast<std::size_t>(at)]) - wanted.value);
                wrong += error <= 1e-6 * wanted.magnitude ? 0 : 1;  // a NaN is wrong too
            }
            CHECK(wrong == 0);
            for (const int threads : {2, 3, 8}) CHECK(same_bits(multiply(kernel, threads, s, a, b), one));
            for (const std::int64_t offset : {1, 2, 3, 5, 7})
                CHECK(same_bits(multiply(kernel, 2, s, a, b, offset), one));
        }
    }
}

TEST_CASE("over many panels a bias belongs to its column, and 16 bits are the float32 result rounded once") {
    const auto kernel = GENERATE(from_range(kernels()));
    const auto factors = GENERATE(DType::bfloat16, DType::float16);
    constexpr std::int64_t kRows = 600, kColumns = 500, kInner = 700;
    std::vector<std::uint16_t> one;
    for (const int threads : {1, 2, 3, 8}) {
        Bench bench(make_cpu_device({.threads = threads, .products = kernel}));
        const auto narrow = [&](std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
            const Tensor out = bench.reserve(factors, rows * columns).reshape({rows, columns});
            launch(bench.stream(), Copy{out, bench.send(random_values(rows * columns, seed)).reshape({rows, columns})});
            return out;
        };
        const Tensor a = narrow(kRows, kInner, 7), b = narrow(kColumns, kInner, 8);
        const Tensor wide = bench.reserve(DType::float32, kRows * kColumns).reshape({kRows, kColumns});
        const Tensor out = bench.reserve(factors, kRows * kColumns).reshape({kRows, kColumns});
        const Tensor wanted = bench.reserve(factors, kRows * kColumns).reshape({kRows, kColumns});
        launch(bench.stream(), Matmul{wide, a, b, false, true});
        const std::vector<float> plain = bench.fetch(wide);
        const Tensor wide_bias = bench.send(random_values(kColumns, 9)),
                     bias = bench.reserve(DType::bfloat16, kColumns);
        launch(bench.stream(), Copy{bias, wide_bias});
        launch(bench.stream(), Copy{wide_bias, bias});
        const std::vector<float> added = bench.fetch(wide_bias);
        for (const Tensor& either : {wide_bias, bias}) {
            launch(bench.stream(), Matmul{wide, a, b, false, true, 1.0F, 0.0F, either});
            const std::vector<float> found = bench.fetch(wide);
            std::int64_t wrong = 0;
            for (std::size_t i = 0; i < found.size(); ++i) wrong += found[i] == plain[i] + added[i % kColumns] ? 0 : 1;
            CHECK(wrong == 0);
        }
        launch(bench.stream(), Matmul{out, a, b, false, true, 1.0F, 0.0F, bias});
        launch(bench.stream(), Copy{wanted, wide});
        const auto bits = bench.fetch<std::uint16_t>(out);
        CHECK(same_bits(bits, bench.fetch<std::uint16_t>(wanted)));
        if (one.empty()) one = bits;
        CHECK(same_bits(bits, one));
    }
}

TEST_CASE("a batch has the bits of single products") {
    const auto kernel = GENERATE(from_range(kernels()));
    Bench bench(make_cpu_device({.threads = 3, .products = kernel}));
    constexpr std::int64_t kBatch = 5, kRows = 70, kColumns = 300, kInner = 200;
    const Tensor a = bench.send(random_values(kBatch * kRows * kInner, 5)).reshape({kBatch, kRows, kInner});
    const Tensor b = bench.send(random_values(kBatch * kColumns * kInner, 6)).reshape({kBatch, kColumns, kInner});
    const Tensor together = bench.reserve(DType::float32, kBatch * kRows * kColumns).reshape({kBatch, kRows, kColumns});
    const Tensor single = bench.reserve(DType::float32, kBatch * kRows * kColumns).reshape({kBatch, kRows, kColumns});
    launch(bench.stream(), Matmul{together, a, b, false, true, 1.0F, 0.0F, {}});
    for (std::int64_t i = 0; i < kBatch; ++i) {
        launch(bench.stream(), Matmul{single.slice(0, i, 1).reshape({kRows, kColumns}),
                                      a.slice(0, i, 1).reshape({kRows, kInner}),
                                      b.slice(0, i, 1).reshape({kColumns, kInner}),
                                      false,
                                      true,
                                      1.0F,
                                      0.0F,
                                      {}});
    }
    CHECK(same_bits(bench.fetch(together), bench.fetch(single)));
}

TEST_CASE("beta = 0 overwrites NaN and infinity, also where there is nothing to multiply") {
    const auto kernel = GENERATE(from_range(kernels()));
    Bench bench(make_cpu_device({.products = kernel}));
    const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    const Tensor a = bench.send(std::vector<float>{1, 2, 3, 4, 5, 6}).reshape({2, 3});
    const Tensor b = bench.send(std::vector<float>{1, 0, 0, 1, 1, 1}).reshape({3, 2});
    const Tensor out = bench.send(std::vector<float>{nan, infinity, nan, -infinity}).reshape({2, 2});
    launch(bench.stream(), Matmul{out, a, b});
    CHECK(bench.fetch(out) == std::vector<float>{4, 5, 10, 11});
    const Tensor empty = bench.send(std::vector<float>{nan, infinity, nan, nan}).reshape({2, 2});
    launch(bench.stream(), Matmul{empty, a.slice(1, 0, 0), b.slice(0, 0, 0)});
    CHECK(bench.fetch(empty) == std::vector<float>{0, 0, 0, 0});
    const Tensor bias = bench.send(std::vector<float>{7, 8});
    launch(bench.stream(), Matmul{out, a.slice(1, 0, 0), b.slice(0, 0, 0), false, false, 1.0F, 2.0F, bias});
    CHECK(bench.fetch(out) == std::vector<float>{15, 18, 27, 30});
}

TEST_CASE("rows may lie further apart than 2^31 elements") {
    // The guard mode's memory is given page by page, so such a matrix costs nothing.
    const auto kernel = GENERATE(from_range(kernels()));
    Bench bench(make_cpu_device({.guard_addresses = true, .products = kernel}));
    constexpr std::int64_t kStride = (std::int64_t{1} << 31) + 64;
    const Buffer memory(bench.device(), bench.ledger(), MemoryCategory::workspace, 4 * (2 * kStride + 8));
    Tensor b = memory.view(DType::float32, {3, 4});
    b.strides[0] = kStride;
    const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    launch(bench.stream(), Copy{b, bench.send(values).reshape({3, 4})});
    const Tensor a = bench.send(std::vector<float>{1, 10, 100}).reshape({1, 3});
    const Tensor out = bench.reserve(DType::float32, 4).reshape({1, 4});
    launch(bench.stream(), Matmul{out, a, b});
    CHECK(bench.fetch(out) == std::vector<float>{951, 1062, 1173, 1284});
}

TEST_CASE("products of the wrong shape, type or layout are refused with the tensors' description") {
    Bench bench(make_cpu_device({}));
    const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
        return bench.reserve(DType::float32, rows * columns).reshape({rows, columns});
    };
    const Tensor out = matrix(2, 3), a = matrix(2, 4), b = matrix(4, 3);
    REQUIRE_NOTHROW(Matmul{out, a, b}.check());
    CHECK_THROWS_WITH((Matmul{out, a, b, true}.check()), Catch::Contains("float32 [2, 4] transposed"));
    CHECK_THROWS_AS((Matmul{out, a, matrix(5, 3)}.check()), InternalError);
    CHECK_THROWS_AS((Matmul{matrix(2, 2), a, b}.check()), InternalError);
    CHECK_THROWS_AS((Matmul{a, a, matrix(4, 4)}.check()), InternalError);
    CHECK_THROWS_AS((Matmul{out, Tensor{}, b}.check()), InternalError);
    Tensor without_memory = a;
    without_memory.data = nullptr;
    CHECK_THROWS_AS((Matmul{out, without_memory, b}.check()), InternalError);
    Tensor doubles = a;
    doubles.dtype = DType::float64;
    CHECK_THROWS_AS((Matmul{out, doubles, b}.check()), InternalError);
    const Tensor half_a = bench.reserve(DType::bfloat16, 8).reshape({2, 4});
    const Tensor half_b = bench.reserve(DType::bfloat16, 12).reshape({4, 3});
    CHECK_THROWS_AS((Matmul{out, half_a, b}.check()), InternalError);
    CHECK_NOTHROW(Matmul{out, half_a, half_b}.check());
    CHECK_NOTHROW(Matmul{bench.reserve(DType::float16, 6).reshape({2, 3}), half_a, half_b}.check());
    CHECK_THROWS_AS((Matmul{bench.reserve(DType::int32, 6).reshape({2, 3}), a, b}.check()), InternalError);
    Tensor strided = a;
    strided.strides[1] = 2;
    CHECK_THROWS_AS((Matmul{out, strided, b}.check()), InternalError);
    Tensor overlapping = a;
    overlapping.strides[0] = 2;
    CHECK_THROWS_AS((Matmul{out, overlapping, b}.check()), InternalError);
    CHECK_THROWS_AS((Matmul{out, a.reshape({1, 2, 4}), b}.check()), InternalError);
    Matmul biased{out, a, b};
    biased.bias = bench.reserve(DType::float32, 2);
    CHECK_THROWS_AS(biased.check(), InternalError);
    biased.bias = bench.reserve(DType::float16, 3);
    CHECK_THROWS_AS(biased.check(), InternalError);
    biased.bias = bench.reserve(DType::bfloat16, 3);
    CHECK_NOTHROW(biased.check());
}

TEST_CASE("a GELU of the wrong shape, type or place, of a batch, or of a sum with out is refused") {
    Bench bench(make_cpu_device({}));
    const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
        return bench.reserve(DType::float32, rows * columns).reshape({rows, columns});
    };
    const Matmul product{.out = matrix(3, 3), .a = matrix(3, 3), .b = matrix(3, 3), .gelu = matrix(3, 3)};
    REQUIRE_NOTHROW(product.check());
    const auto with_gelu = [&](const Tensor& gelu) {
        Matmul changed = product;
        changed.gelu = gelu;
        return changed;
    };
    for (const Tensor& gelu : {product.out, product.a, product.b, matrix(3, 2), matrix(3, 3).reshape({1, 3, 3}),
                               bench.reserve(DType::float32, 9), bench.reserve(DType::bfloat16, 9).reshape({3, 3})}) {
        CHECK_THROWS_AS(with_gelu(gelu).check(), InternalError);
    }
    Tensor overlapping = product.gelu, apart = matrix(3, 4);
    overlapping.strides[0] = 2;
    CHECK_THROWS_AS(with_gelu(overlapping).check(), InternalError);
    CHECK_NOTHROW(with_gelu(apart.slice(1, 0, 3)).check());
    Matmul sum = product;
    sum.beta = 1.0F;
    CHECK_THROWS_WITH(sum.check(), Catch::Contains("beta = 0"));
    const auto batch = [](const Tensor& one) { return one.reshape({1, 3, 3}); };
    const Matmul batched{.out = batch(product.out), .a = batch(product.a), .b = batch(product.b)};
    REQUIRE_NOTHROW(batched.check());
    Matmul batched_gelu = batched;
    batched_gelu.gelu = batch(product.gelu);
    CHECK_THROWS_WITH(batched_gelu.check(), Catch::Contains("a single product"));
    const auto halves = [&] { return bench.reserve(DType::float16, 9).reshape({3, 3}); };
    const Matmul half{.out = halves(), .a = halves(), .b = halves()};
    REQUIRE_NOTHROW(half.check());
    Matmul half_gelu = half;
    half_gelu.gelu = halves();
    CHECK_THROWS_AS(half_gelu.check(), InternalError);
}

TEST_CASE("a product with GELU on the CPU has the bits of the two operations, with gaps between rows or without") {
    const auto kernel = GENERATE(from_range(kernels()));
    const auto type = GENERATE(DType::float32, DType::bfloat16);
    constexpr std::int64_t kRows = 70, kColumns = 300, kInner = 200, kGap = 5;
    Bench bench(make_cpu_device({.threads = 3, .products = kernel}));
    const auto values = [&](std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
        const Tensor result = bench.reserve(type, rows * columns).reshape({rows, columns});
        launch(bench.stream(), Copy{result, bench.send(random_values(rows * columns, seed)).reshape({rows, columns})});
        return result;
    };
    const auto bits = [&](const Tensor& tensor) {
        const Tensor dense = bench.reserve(type, tensor.count()).reshape({kRows, kColumns});
        launch(bench.stream(), Copy{dense, tensor});
        return bench.fetch<std::int16_t>(Tensor::dense(dense.data, DType::bfloat16, {dense.bytes() / 2}));
    };
    Matmul product{.out = values(kRows, kColumns, 1),
                   .a = values(kRows, kInner, 2),
                   .b = values(kColumns, kInner, 3),
                   .transpose_b = true,
                   .bias = values(1, kColumns, 4).reshape({kColumns})};
    const Tensor gelu = values(kRows, kColumns, 5);
    launch(bench.stream(), product);
    launch(bench.stream(), GeluForward{gelu, product.out});
    const auto wanted = bits(product.out), wanted_gelu = bits(gelu);
    for (const bool gaps : {false, true}) {
        const auto fresh = [&](std::uint64_t seed) {
            return values(kRows, kColumns + (gaps ? kGap : 0), seed).slice(1, 0, kColumns);
        };
        product.out = fresh(6);
        product.gelu = fresh(7);
        launch(bench.stream(), product);
        CHECK(same_bits(bits(product.out), wanted));
        CHECK(same_bits(bits(product.gelu), wanted_gelu));
    }
}

TEST_CASE("a product is computed by whom the device was told, and the description says by whom") {
    CHECK(make_cpu_device({.products = ProductKernel::own})->description().find("own products") != std::string::npos);
    const CpuDeviceOptions with_onednn{.products = ProductKernel::onednn};
    if (cpu::has_onednn()) {
        CHECK(make_cpu_device(with_onednn)->description().find("oneDNN ") != std::string::npos);
    } else {
        CHECK_THROWS_AS(make_cpu_device(with_onednn), ConfigError);
    }
}

TEST_CASE("a product costs two operations per multiply-add") {
    std::byte memory{};
    const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
        return Tensor::dense(&memory, DType::float32, {rows, columns});
    };
    Matmul product{matrix(3, 5), matrix(3, 7), matrix(7, 5)};
    CHECK(product.cost().flops == 2 * 3 * 5 * 7);
    CHECK(product.cost().bytes == 4 * (15 + 21 + 35));
    product.beta = 1.0F;
    product.bias = Tensor::dense(&memory, DType::float32, {5});
    CHECK(product.cost().flops == 2 * 3 * 5 * 7 + 15);
    CHECK(product.cost().bytes == 4 * (15 + 15 + 21 + 35 + 5));
    product.a.dtype = product.b.dtype = product.bias.dtype = DType::bfloat16;
    CHECK(product.cost().flops == 2 * 3 * 5 * 7 + 15);
    CHECK(product.cost().bytes == 4 * (15 + 15) + 2 * (21 + 35 + 5));
    product.beta = 0.0F;
    product.gelu = matrix(3, 5);
    CHECK(product.cost().flops == 2 * 3 * 5 * 7 + 15 + 10 * 15);
    CHECK(product.cost().bytes == 4 * (15 + 15) + 2 * (21 + 35 + 5));  // out is not read again
}

TEST_CASE("panels cover a product, are many for large ones and one for small ones") {
    for (const Sides& s : {Sides{256, 768, 768}, Sides{256, 768, 3072}, Sides{768, 768, 256}, Sides{3072, 768, 256},
                           Sides{256, 4096, 768}, Sides{16384, 64, 256}}) {
        INFO(s.m << " x " << s.n << " x " << s.k);
        const cpu::Panels panels = cpu::cut_into_panels(s.m, s.n, s.k);
        const std::int64_t down = panels.row_panels(s.m), across = panels.column_panels(s.n);
        CHECK(down * across >= 8);
        CHECK((down - 1) * panels.rows < s.m);
        CHECK(down * panels.rows >= s.m);
        CHECK((across - 1) * panels.columns < s.n);
        CHECK(across * panels.columns >= s.n);
    }
    const cpu::Panels small = cpu::cut_into_panels(64, 64, 64);
    CHECK(small.row_panels(64) * small.column_panels(64) == 1);
}

}  // namespace mfsdp::device
