// Every backward operation against central differences of its forward in double precision (reference.h): the gradient
// of the sum of out * cotangent, element by element.

#include "mfsdp/device/cpu_device.h"

#include "device/reference.h"
#include "device/transfers.h"
#include "support/catch.h"

#include <cmath>
#include <functional>

using namespace mfsdp::device;
using reference::HeadShape;
using reference::Size;
using reference::Vector;

namespace {

/// Float32 values on the device and the same values in double.
struct Both {
    Tensor tensor;
    Vector values;
};

class Check {
  public:
    Check() : bench_(make_cpu_device({.threads = 2})) {}

    Both random(std::initializer_list<std::int64_t> shape) {
        const std::int64_t count = Tensor::dense(nullptr, DType::float32, shape).count();
        return given(test::random_values(count, ++seed_), shape);
    }
    Both given(const std::vector<float>& values, std::initializer_list<std::int64_t> shape) {
        return {bench_.send(values).reshape(shape), Vector(values.begin(), values.end())};
    }
    Tensor ids(const std::vector<std::int32_t>& values) { return bench_.send(DType::int32, values); }
    Tensor space(std::initializer_list<std::int64_t> shape) {
        const std::int64_t count = Tensor::dense(nullptr, DType::float32, shape).count();
        return bench_.reserve(DType::float32, count).reshape(shape);
    }
    template <class Op>
    void run(const Op& operation) {
        launch(bench_.stream(), operation);
    }
    std::vector<float> fetch(const Tensor& tensor) { return bench_.fetch(tensor); }

    /// `gradient` is d(objective)/d(values) at `at`.
    void agrees(const Tensor& gradient, const Vector& at, const std::function<double(const Vector&)>& objective) {
        const std::vector<float> found = fetch(gradient);
        REQUIRE(found.size() == at.size());
        REQUIRE_FALSE(found.empty());
        constexpr double kStep = 1e-5;  // error of the difference: about 1e-10
        double largest = 0.0, worst = 0.0;
        for (Size i = 0; i < at.size(); ++i) {
            Vector above = at, below = at;
            above[i] += kStep;
            below[i] -= kStep;
            const double wanted = (objective(above) - objective(below)) / (2.0 * kStep);
            largest = std::max(largest, std::abs(wanted));
            const double difference = std::abs(static_cast<double>(found[i]) - wanted);
            worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
        }
        CHECK(largest > 0.0);
        CHECK(worst <= 5e-6 * largest);
    }

  private:
    test::Bench bench_;
    std::uint64_t seed_ = 100;
};

double dot(const Vector& a, const Vector& b) {
    REQUIRE(a.size() == b.size());
    double sum = 0.0;
    for (Size i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

/// [m, k] [k, n] with either factor stored transposed.
Vector product(const Vector& a, const Vector& b, Size m, Size n, Size k, bool transpose_a, bool transpose_b) {
    Vector out(m * n, 0.0);
    for (Size i = 0; i < m; ++i) {
        for (Size j = 0; j < n; ++j) {
            for (Size t = 0; t < k; ++t) {
                out[i * n + j] += a[transpose_a ? t * m + i : i * k + t] * b[transpose_b ? j * k + t : t * n + j];
            }
        }
    }
    return out;
}

constexpr float kEpsilon = 1e-5F;
constexpr double kEpsilonAsDouble = static_cast<double>(kEpsilon);

}  // namespace

TEST_CASE("the gradient of an embedding agrees with finite differences") {
    Check check;
    constexpr std::int64_t kVocabulary = 5, kColumns = 3, kTokens = 9;
    const Both table = check.random({kVocabulary, kColumns}), cotangent = check.random({kTokens, kColumns});
    const std::vector<std::int32_t> ids{4, 0, 2, 2, 1, 4, 0, 0, 2};
    const Tensor grad = check.space({kVocabulary, kColumns});
    check.run(EmbeddingBackward{grad, cotangent.tensor, check.ids(ids)});
    check.agrees(grad, table.values, [&](const Vector& rows) {
        double sum = 0.0;
        for (Size i = 0; i < ids.size(); ++i) {
            for (Size c = 0; c < 3; ++c) sum += rows[static_cast<Size>(ids[i]) * 3 + c] * cotangent.values[i * 3 + c];
        }
        return sum;
    });
}

TEST_CASE("the gradient of position embeddings agrees with finite differences") {
    Check check;
    constexpr std::int64_t kBatch = 3, kLength = 4, kPositions = 6, kColumns = 5;
    const Both positions = check.random({kPositions, kColumns}), cotangent = check.random({kBatch, kLength, kColumns});
    const Tensor grad = check.space({kPositions, kColumns});
    check.run(PositionBackward{grad, cotangent.tensor});
    check.agrees(grad, positions.values, [&](const Vector& rows) {
        double sum = 0.0;
        for (Size i = 0; i < cotangent.values.size(); ++i) sum += rows[i % (4 * 5)] * cotangent.values[i];
        return sum;
    });
}

TEST_CASE("the gradients of LayerNorm agree with finite differences") {
    Check check;
    constexpr std::int64_t kRows = 5, kColumns = 11;
    const Both in = check.random({kRows, kColumns}), weight = check.random({kColumns}), bias = check.random({kColumns});
    const Both cotangent = check.random({kRows, kColumns});
    const Tensor out = check.space({kRows, kColumns}), mean = check.space({kRows}), reciprocal = check.space({kRows});
    const Tensor grad_in = check.space({kRows, kColumns}), grad_weight = check.space({kColumns}),
                 grad_bias = check.space({kColumns});
    check.run(LayerNormForward{out, mean, reciprocal, in.tensor, weight.tensor, bias.tensor, kEpsilon});
    check.run(LayerNormBackward{grad_in, grad_weight, grad_bias, cotangent.tensor, in.tensor, mean, reciprocal,
                                weight.tensor});
    const auto objective = [&](const Vector& x, const Vector& w, const Vector& b) {
        return dot(reference::layer_norm(x, w, b, 5, kEpsilonAsDouble).out, cotangent.values);
    };
    check.agrees(grad_in, in.values, [&](const Vector& x) { return objective(x, weight.values, bias.values); });
    check.agrees(grad_weight, weight.values, [&](const Vector& w) { return objective(in.values, w, bias.values); });
    check.agrees(grad_bias, bias.values, [&](const Vector& b) { return objective(in.values, weight.values, b); });
}

TEST_CASE("the gradients of RmsNorm agree with finite differences") {
    Check check;
    constexpr std::int64_t kRows = 4, kColumns = 13;
    const Both in = check.random({kRows, kColumns}), weight = check.random({kColumns});
    const Both cotangent = check.random({kRows, kColumns});
    const Tensor out = check.space({kRows, kColumns}), reciprocal = check.space({kRows});
    const Tensor grad_in = check.space({kRows, kColumns}), grad_weight = check.space({kColumns});
    check.run(RmsNormForward{out, reciprocal, in.tensor, weight.tensor, kEpsilon});
    check.run(RmsNormBackward{grad_in, grad_weight, cotangent.tensor, in.tensor, reciprocal, weight.tensor});
    const auto objective = [&](const Vector& x, const Vector& w) {
        return dot(reference::rms_norm(x, w, 4, kEpsilonAsDouble).out, cotangent.values);
    };
    check.agrees(grad_in, in.values, [&](const Vector& x) { return objective(x, weight.values); });
    check.agrees(grad_weight, weight.values, [&](const Vector& w) { return objective(in.values, w); });
}

TEST_CASE("the gradients of GELU and SwiGLU agree with finite differences") {
    Check check;
    std::vector<float> spread;
    for (int i = 0; i < 41; ++i) spread.push_back(static_cast<float>(i - 20) * 0.4F);
    const Both in = check.given(spread, {41}), up = check.random({41}), cotangent = check.random({41});
    const Tensor grad_in = check.space({41}), grad_up = check.space({41});

    check.run(GeluBackward{grad_in, cotangent.tensor, in.tensor});
    check.agrees(grad_in, in.values, [&](const Vector& x) {
        double sum = 0.0;
        for (Size i = 0; i < x.size(); ++i) sum += reference::gelu(x[i]) * cotangent.values[i];
        return sum;
    });

    const auto swiglu = [&](const Vector& gate, const Vector& factor) {
        double sum = 0.0;
        for (Size i = 0; i < gate.size(); ++i) sum += reference::silu(gate[i]) * factor[i] * cotangent.values[i];
        return sum;
    };
    check.run(SwiGluBackward{grad_in, grad_up, cotangent.tensor, in.tensor, up.tensor});
    check.agrees(grad_in, in.values, [&](const Vector& gate) { return swiglu(gate, up.values); });
    check.agrees(grad_up, up.values, [&](const Vector& factor) { return swiglu(in.values, factor); });
}

TEST_CASE("the inverse rotation is the gradient of the rotation") {
    Check check;
    constexpr HeadShape kShape{2, 3, 2, 2, 6};
    std::vector<float> cosine, sine;
    for (int i = 0; i < 4 * 3; ++i) {
        cosine.push_back(std::cos(0.7F * static_cast<float>(i)));
        sine.push_back(std::sin(0.7F * static_cast<float>(i)));
    }
    const Both x = check.random({2, 3, 2, 6}), cotangent = check.random({2, 3, 2, 6});
    const Both c = check.given(cosine, {4, 3}), s = check.given(sine, {4, 3});
    check.run(Rotary{cotangent.tensor, c.tensor, s.tensor, true});
    check.agrees(cotangent.tensor, x.values, [&](const Vector& values) {
        return dot(reference::rotary(values, c.values, s.values, kShape, false), cotangent.values);
    });
}

TEST_CASE("the gradients of attention agree with finite differences") {
    // Lengths that no tile divides, fewer key heads than query heads, and head dimensions that fill no vector.
    const auto shape = GENERATE(HeadShape{2, 7, 4, 2, 5}, HeadShape{1, 67, 2, 1, 3}, HeadShape{1, 20, 3, 3, 8});
    Check check;
    const auto batch = static_cast<std::int64_t>(shape.batch), length = static_cast<std::int64_t>(shape.length),
               heads = static_cast<std::int64_t>(shape.heads), key_heads = static_cast<std::int64_t>(shape.key_heads),
               dimension = static_cast<std::int64_t>(shape.dimension);
    constexpr float kScale = 0.9F;
    const Both query = check.random({batch, length, heads, dimension}),
               key = check.random({batch, length, key_heads, dimension}),
               value = check.random({batch, length, key_heads, dimension}),
               cotangent = check.random({batch, length, heads, dimension});
    const Tensor out = check.space({batch, length, heads, dimension}),
                 log_sum_exp = check.space({batch, heads, length}), delta = check.space({batch, heads, length}),
                 grad_query = check.space({batch, length, heads, dimension}),
                 grad_key = check.space({batch, length, key_heads, dimension}),
                 grad_value = check.space({batch, length, key_heads, dimension});
    check.run(AttentionForward{out, log_sum_exp, query.tensor, key.tensor, value.tensor, kScale});
    check.run(AttentionBackward{grad_query, grad_key, grad_value, delta, cotangent.tensor, out, log_sum_exp,
                                query.tensor, key.tensor, value.tensor, kScale});
    const auto objective = [&](const Vector& q, const Vector& k, const Vector& v) {
        return dot(reference::attention(q, k, v, shape, static_cast<double>(kScale)).out, cotangent.values);
    };
    check.agrees(grad_query, query.values, [&](const Vector& q) { return objective(q, key.values, value.values); });
    check.agrees(grad_key, key.values, [&](const Vector& k) { return objective(query.values, k, value.values); });
    check.agrees(grad_value, value.values, [&](const Vector& v) { return objective(query.values, key.values, v); });
}

TEST_CASE("the gradient of the head with z-loss over panels of any width agrees with finite differences") {
    const std::int64_t width = GENERATE(1, 5, 8, 19, 23, 100);
    const float z_loss = GENERATE(0.0F, 0.05F);
    Check check;
    constexpr std::int64_t kTokens = 6, kVocabulary = 23;
    const Both logits = check.random({kTokens, kVocabulary});
    const std::vector<std::int32_t> targets{0, 22, kIgnoredTarget, 7, 18, 19};
    const Tensor ids = check.ids(targets), maximum = check.space({kTokens}), sum = check.space({kTokens}),
                 target_logit = check.space({kTokens});
    const auto for_panels = [&](const auto& body) {
        for (std::int64_t begin = 0; begin < kVocabulary; begin += width) {
            body(begin, logits.tensor.slice(1, begin, std::min(width, kVocabulary - begin)));
        }
    };
    for_panels([&](std::int64_t begin, const Tensor& panel) {
        check.run(LogSumExpUpdate{maximum, sum, target_logit, panel, ids, begin, begin == 0});
    });
    for_panels([&](std::int64_t begin, const Tensor& panel) {
        check.run(CrossEntropyBackward{panel, panel, maximum, sum, ids, begin, z_loss});
    });
    const auto objective = [&](const Vector& values) {
        double total = 0.0;
        for (Size i = 0; i < targets.size(); ++i) {
            if (targets[i] == kIgnoredTarget) continue;
            double exponentials = 0.0;
            for (Size c = 0; c < 23; ++c) exponentials += std::exp(values[i * 23 + c]);
            const double log_z = std::log(exponentials);
            total += log_z - values[i * 23 + static_cast<Size>(targets[i])];
            total += static_cast<double>(z_loss) * log_z * log_z;
        }
        return total;
    };
    check.agrees(logits.tensor, logits.values, objective);
}

TEST_CASE("the products that give the gradients of a linear layer agree with finite differences") {
    // y [n, out] = x [n, in] W^T + b, W [out, in]: grad_x = g W, grad_W = g^T x, grad_b = column sums of g.
    Check check;
    constexpr std::int64_t kRows = 7, kIn = 5, kOut = 6;
    const Both x = check.random({kRows, kIn}), weight = check.random({kOut, kIn}), bias = check.random({kOut});
    const Both cotangent = check.random({kRows, kOut});
    const Tensor y = check.space({kRows, kOut}), grad_x = check.space({kRows, kIn}),
                 grad_weight = check.space({kOut, kIn}), grad_bias = check.space({kOut});
    const auto forward = [&](const Vector& values, const Vector& w, const Vector& b) {
        Vector out = product(values, w, 7, 6, 5, false, true);
        for (Size i = 0; i < out.size(); ++i) out[i] += b[i % 6];
        return out;
    };
    check.run(Matmul{y, x.tensor, weight.tensor, false, true, 1.0F, 0.0F, bias.tensor});
    const Vector wanted = forward(x.values, weight.values, bias.values);
    const std::vector<float> found = check.fetch(y);
    for (Size i = 0; i < wanted.size(); ++i) CHECK(found[i] == Approx(wanted[i]).epsilon(1e-5).margin(1e-6));

    check.run(Matmul{grad_x, cotangent.tensor, weight.tensor});
    check.run(Matmul{grad_weight, cotangent.tensor, x.tensor, true, false});
    check.run(ColumnSum{grad_bias, cotangent.tensor});
    const auto objective = [&](const Vector& v, const Vector& w, const Vector& b) {
        return dot(forward(v, w, b), cotangent.values);
    };
    check.agrees(grad_x, x.values, [&](const Vector& v) { return objective(v, weight.values, bias.values); });
    check.agrees(grad_weight, weight.values, [&](const Vector& w) { return objective(x.values, w, bias.values); });
    check.agrees(grad_bias, bias.values, [&](const Vector& b) { return objective(x.values, weight.values, b); });
}
