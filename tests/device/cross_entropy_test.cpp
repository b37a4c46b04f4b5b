#include "mfsdp/device/ops/cross_entropy.h"

#include "mfsdp/device/cpu_device.h"

#include "device/reference.h"
#include "device/transfers.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>

using namespace mfsdp::device;
using reference::Vector;
using test::Bench;
using test::random_values;

namespace {

struct Head {
    std::vector<float> loss, gradient;
    double loss_sum = 0.0, log_z_squares = 0.0;
    std::int64_t target_count = 0;
};

/// The head as the model runs it: all panels folded, the losses summed (of all tokens and, for `loss`, of each alone),
/// then all panels differentiated.
Head run_head(const std::vector<float>& logits, const std::vector<std::int32_t>& targets, std::int64_t panel) {
    Bench bench(make_cpu_device({.threads = 2}));
    const auto tokens = static_cast<std::int64_t>(targets.size());
    const std::int64_t vocabulary = static_cast<std::int64_t>(logits.size()) / tokens;
    const Tensor all = bench.send(logits).reshape({tokens, vocabulary});
    const Tensor ids = bench.send(DType::int32, targets);
    const Tensor maximum = bench.reserve(DType::float32, tokens), sum = bench.reserve(DType::float32, tokens),
                 target_logit = bench.reserve(DType::float32, tokens);
    const auto for_panels = [&](const auto& body) {
        for (std::int64_t begin = 0; begin < vocabulary; begin += panel) {
            body(begin, all.slice(1, begin, std::min(panel, vocabulary - begin)));
        }
    };
    for_panels([&](std::int64_t begin, const Tensor& part) {
        launch(bench.stream(), LogSumExpUpdate{maximum, sum, target_logit, part, ids, begin, begin == 0});
    });
    const Tensor loss_sum = bench.reserve(DType::float64, 1), count = bench.reserve(DType::int64, 1),
                 squares = bench.reserve(DType::float64, 1);
    const auto sum_losses = [&](std::int64_t begin, std::int64_t size) {
        const auto part = [&](const Tensor& tensor) { return tensor.slice(0, begin, size); };
        launch(bench.stream(),
               LossSum{loss_sum, count, squares, part(maximum), part(sum), part(target_logit), part(ids)});
        return bench.fetch<double>(loss_sum)[0];
    };
    Head head;
    for (std::int64_t i = 0; i < tokens; ++i) head.loss.push_back(static_cast<float>(sum_losses(i, 1)));
    head.loss_sum = sum_losses(0, tokens);
    head.log_z_squares = bench.fetch<double>(squares)[0];
    head.target_count = bench.fetch<std::int64_t>(count)[0];
    for_panels([&](std::int64_t begin, const Tensor& part) {
        launch(bench.stream(), CrossEntropyBackward{part, part, maximum, sum, ids, begin, 0.0F});
    });
    head.gradient = bench.fetch(all);
    return head;
}

Vector as_double(const auto& values) { return Vector(values.begin(), values.end()); }

}  // namespace

TEST_CASE("losses and gradients of a vocabulary in real panels agree with the definition") {
    // Two whole panels and a rest; targets on every side of every border.
    constexpr std::int64_t kVocabulary = 2 * kVocabularyPanelRows + 77;
    const std::vector<std::int32_t> targets{0, 4095, 4096, 8191, 8192, kVocabulary - 1, kIgnoredTarget};
    std::vector<float> logits = random_values(7 * kVocabulary, 5);
    for (float& x : logits) x *= 8.0F;
    const Head head = run_head(logits, targets, kVocabularyPanelRows);
    const Vector wanted = reference::cross_entropy(as_double(logits), as_double(targets));
    REQUIRE(head.loss.size() == 7);
    double total = 0.0, squares = 0.0;
    for (std::size_t i = 0; i < 7; ++i) {
        CHECK(head.loss[i] == Approx(wanted[i]).epsilon(1e-6).margin(1e-12));
        total += static_cast<double>(head.loss[i]);
        if (targets[i] != kIgnoredTarget) {
            const auto target = i * kVocabulary + static_cast<std::size_t>(targets[i]);
            squares += std::pow(wanted[i] + static_cast<double>(logits[target]), 2);
        }
        double row = 0.0, magnitude = 0.0;
        for (std::int64_t v = 0; v < kVocabulary; ++v) {
            const auto g = static_cast<double>(head.gradient[i * kVocabulary + static_cast<std::size_t>(v)]);
            row += g;
            magnitude += std::abs(g);
        }
        CHECK(std::abs(row) < 1e-5);  // probabilities add to 1
        CHECK(magnitude == (targets[i] == kIgnoredTarget ? Approx(0.0).margin(0.0) : Approx(2.0).epsilon(0.2)));
    }
    CHECK(head.loss_sum == Approx(total).epsilon(1e-15));
    CHECK(head.log_z_squares == Approx(squares).epsilon(1e-6));
    CHECK(head.target_count == 6);
}

TEST_CASE("logits of ten thousand give finite losses and gradients") {
    const std::vector<float> logits{1e4F, -1e4F, 0.0F, -1e4F, 1e4F, 1e4F, 9999.0F, 1e4F, 9998.0F};
    const Head head = run_head(logits, {0, 0, 2}, 2);
    REQUIRE(head.loss.size() == 3);
    CHECK(head.loss[0] == 0.0F);
    CHECK(head.loss[1] == Approx(20000.0 + std::log(2.0)));
    CHECK(head.loss[2] == Approx(2.0 + std::log(1.0 + std::exp(-1.0) + std::exp(-2.0))).epsilon(1e-6));
    for (const float g : head.gradient) CHECK((std::isfinite(g) && std::abs(g) <= 1.0F));
    CHECK(head.gradient[3] == -1.0F);  // the target has no probability
}

TEST_CASE("a batch whose targets are all ignored gives no loss, no gradient and a count of 0") {
    const Head head = run_head(random_values(4 * 10, 6), std::vector<std::int32_t>(4, kIgnoredTarget), 3);
    CHECK(head.loss == std::vector<float>(4, 0.0F));
    CHECK(head.gradient == std::vector<float>(40, 0.0F));
    CHECK(head.loss_sum == 0.0);
    CHECK(head.log_z_squares == 0.0);
    CHECK(head.target_count == 0);
}

TEST_CASE("a NaN logit shows in the loss and the gradients of its token and of no other") {
    std::vector<float> logits = random_values(3 * 20, 7);
    logits[20 + 13] = std::nanf("");
    const Head head = run_head(logits, {1, 2, 3}, 8);
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK(std::isnan(head.loss[i]) == (i == 1));
        CHECK(std::isnan(head.gradient[i * 20]) == (i == 1));
    }
    CHECK(std::isnan(head.loss_sum));
}

TEST_CASE("the gradient in bfloat16 is that in float32 rounded once, at the target too") {
    constexpr std::int64_t kTokens = 64, kColumns = 100;
    Bench bench(make_cpu_device({.threads = 2}));
    const Tensor logits = bench.send(random_values(kTokens * kColumns, 9)).reshape({kTokens, kColumns});
    std::vector<std::int32_t> targets;
    for (std::int32_t i = 0; i < kTokens; ++i) targets.push_back(i);
    const Tensor ids = bench.send(DType::int32, targets);
    const Tensor maximum = bench.send(std::vector<float>(kTokens, 1.0F));
    const Tensor sum = bench.send(std::vector<float>(kTokens, 5.0F));  // probabilities near 1/5: 1 - p takes more bits
    const auto reserve = [&](DType dtype) {
        return bench.reserve(dtype, kTokens * kColumns).reshape({kTokens, kColumns});
    };
    const Tensor wide = reserve(DType::float32), half = reserve(DType::bfloat16), wanted = reserve(DType::bfloat16);
    launch(bench.stream(), CrossEntropyBackward{wide, logits, maximum, sum, ids, 0, 0.25F});
    launch(bench.stream(), CrossEntropyBackward{half, logits, maximum, sum, ids, 0, 0.25F});
    launch(bench.stream(), Copy{wanted, wide});
    CHECK(test::same_bits(bench.fetch<std::uint16_t>(half), bench.fetch<std::uint16_t>(wanted)));
}

TEST_CASE("the loss of one token does not depend on the tokens beside it") {
    const std::vector<float> logits = random_values(9 * 600, 8);
    std::vector<std::int32_t> targets;
    for (int i = 0; i < 9; ++i) targets.push_back(i * 60);
    const Head together = run_head(logits, targets, 512);
    for (std::size_t i = 0; i < 9; ++i) {
        const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i * 600);
        const Head alone = run_head({row, row + 600}, {targets[i]}, 512);
        REQUIRE(alone.loss.size() == 1);
        CHECK(alone.loss[0] == together.loss[i]);
    }
}
