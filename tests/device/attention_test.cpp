#include "mfsdp/device/ops/attention.h"

#include "mfsdp/device/cpu_device.h"

#include "device/transfers.h"
#include "support/catch.h"

#include <cmath>

using namespace mfsdp::device;
using test::Bench;
using test::random_values;

namespace {

constexpr std::int64_t kBatch = 2, kHeads = 4, kKeyHeads = 2, kDimension = 16;

struct Inputs {
    std::vector<float> query, key, value;
};

Inputs random_inputs(std::int64_t length, float factor = 1.0F) {
    Inputs inputs{random_values(kBatch * length * kHeads * kDimension, 1),
                  random_values(kBatch * length * kKeyHeads * kDimension, 2),
                  random_values(kBatch * length * kKeyHeads * kDimension, 3)};
    for (float& x : inputs.query) x *= factor;
    return inputs;
}

struct Result {
    std::vector<float> out, log_sum_exp;
};

Result forward(const Inputs& inputs, std::int64_t length) {
    Bench bench(make_cpu_device({.threads = 2}));
    const Tensor query = bench.send(inputs.query).reshape({kBatch, length, kHeads, kDimension});
    const Tensor key = bench.send(inputs.key).reshape({kBatch, length, kKeyHeads, kDimension});
    const Tensor value = bench.send(inputs.value).reshape({kBatch, length, kKeyHeads, kDimension});
    const Tensor out = bench.reserve(DType::float32, query.count()).reshape({kBatch, length, kHeads, kDimension});
    const Tensor log_sum_exp =
        bench.reserve(DType::float32, kBatch * kHeads * length).reshape({kBatch, kHeads, length});
    launch(bench.stream(), AttentionForward{out, log_sum_exp, query, key, value, 0.25F});
    return {bench.fetch(out), bench.fetch(log_sum_exp)};
}

}  // namespace

TEST_CASE("a token that comes later changes no bit of what attention gives for earlier tokens") {
    constexpr std::int64_t kLength = 100;
    const std::int64_t changed = GENERATE(1, 63, 64, 99);
    Inputs inputs = random_inputs(kLength);
    const Result before = forward(inputs, kLength);
    for (std::int64_t i = 0; i < kKeyHeads * kDimension; ++i) {
        inputs.key[static_cast<std::size_t>(changed * kKeyHeads * kDimension + i)] = 50.0F;
        inputs.value[static_cast<std::size_t>(changed * kKeyHeads * kDimension + i)] = -1e6F;
    }
    const Result after = forward(inputs, kLength);
    std::int64_t equal = 0, different = 0;
    for (std::int64_t t = 0; t < kLength; ++t) {
        for (std::int64_t i = 0; i < kHeads * kDimension; ++i) {
            const auto index = static_cast<std::size_t>(t * kHeads * kDimension + i);
            const bool same = before.out[index] == after.out[index];
            if (t < changed) equal += same ? 1 : 0;
            if (t == changed) different += same ? 0 : 1;
        }
    }
    CHECK(equal == changed * kHeads * kDimension);
    CHECK(different > 0);
}

TEST_CASE("the first token attends to itself alone") {
    const Inputs inputs = random_inputs(5);
    const Result result = forward(inputs, 5);
    for (std::int64_t h = 0; h < kHeads; ++h) {
        for (std::int64_t d = 0; d < kDimension; ++d) {
            const auto own = static_cast<std::size_t>(h * kDimension + d);
            const auto shared = static_cast<std::size_t>(h / (kHeads / kKeyHeads) * kDimension + d);
            CHECK(result.out[own] == inputs.value[shared]);
        }
    }
}

TEST_CASE("attention with scores of ten thousand stays finite and chooses the largest") {
    constexpr std::int64_t kLength = 70;
    const Result result = forward(random_inputs(kLength, 1e4F), kLength);
    REQUIRE_FALSE(result.out.empty());
    for (const float x : result.out) REQUIRE((std::isfinite(x) && std::abs(x) <= 1.000001F));
    for (const float x : result.log_sum_exp) REQUIRE(std::isfinite(x));
}

TEST_CASE("a NaN in a query shows in its own row and in no other") {
    constexpr std::int64_t kLength = 66;
    Inputs inputs = random_inputs(kLength);
    constexpr std::int64_t kRow = 65;
    inputs.query[static_cast<std::size_t>(kRow * kHeads * kDimension + 3)] = std::nanf("");
    const Result result = forward(inputs, kLength);
    for (std::int64_t t = 0; t < kLength; ++t) {
        const bool is_nan = std::isnan(result.out[static_cast<std::size_t>(t * kHeads * kDimension)]);
        CHECK(is_nan == (t == kRow));
    }
}

TEST_CASE("attention reads and writes the slices of one packed tensor as it does separate tensors") {
    constexpr std::int64_t kLength = 75, kWidth = (kHeads + 2 * kKeyHeads) * kDimension;
    const Inputs inputs = random_inputs(kLength);
    std::vector<float> packed;
    const auto append = [&](const std::vector<float>& from, std::int64_t token, std::int64_t width) {
        packed.insert(packed.end(), from.begin() + token * width, from.begin() + (token + 1) * width);
    };
    for (std::int64_t token = 0; token < kBatch * kLength; ++token) {
        append(inputs.query, token, kHeads * kDimension);
        append(inputs.key, token, kKeyHeads * kDimension);
        append(inputs.value, token, kKeyHeads * kDimension);
    }
    Bench bench(make_cpu_device({.threads = 1}));
    const Tensor all = bench.send(packed).reshape({kBatch, kLength, kWidth});
    const auto part = [&](std::int64_t begin, std::int64_t heads) {
        return all.slice(2, begin * kDimension, heads * kDimension).split(2, heads, kDimension);
    };
    const Tensor out = bench.reserve(DType::float32, kBatch * kLength * kHeads * kDimension)
                           .reshape({kBatch, kLength, kHeads, kDimension});
    const Tensor log_sum_exp =
        bench.reserve(DType::float32, kBatch * kHeads * kLength).reshape({kBatch, kHeads, kLength});
    launch(bench.stream(), AttentionForward{out, log_sum_exp, part(0, kHeads), part(kHeads, kKeyHeads),
                                            part(kHeads + kKeyHeads, kKeyHeads), 0.25F});
    const Result separate = forward(inputs, kLength);
    CHECK(test::same_bits(bench.fetch(out), separate.out));
    CHECK(test::same_bits(bench.fetch(log_sum_exp), separate.log_sum_exp));
}

TEST_CASE("a rotation and its inverse give back the heads") {
    Bench bench(make_cpu_device({.threads = 1}));
    const std::vector<float> start = random_values(2 * 5 * 3 * 6, 4);
    std::vector<float> cosine, sine;
    for (int i = 0; i < 5 * 3; ++i) {
        cosine.push_back(std::cos(static_cast<float>(i)));
        sine.push_back(std::sin(static_cast<float>(i)));
    }
    const Tensor x = bench.send(start).reshape({2, 5, 3, 6});
    const Tensor c = bench.send(cosine).reshape({5, 3}), s = bench.send(sine).reshape({5, 3});
    launch(bench.stream(), Rotary{x, c, s, false});
    const std::vector<float> turned = bench.fetch(x);
    launch(bench.stream(), Rotary{x, c, s, true});
    const std::vector<float> back = bench.fetch(x);
    REQUIRE(back.size() == start.size());
    CHECK(turned != start);
    for (std::size_t i = 0; i < start.size(); ++i) CHECK(back[i] == Approx(start[i]).margin(1e-6));
}
