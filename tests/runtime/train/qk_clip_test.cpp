#include "support/catch.h"
#include "support/training_run.h"

#include <algorithm>
#include <cmath>

// QK-clip in the whole engine: the largest logits of a step over all ranks, and what they do to the masters of queries
// and keys.

using namespace mfsdp;
using runtime::Strategy;
using test::run_training;
using test::TrainingCase;
using test::TrainingOutcome;

namespace {

constexpr double kThreshold = 1e-3;

TrainingCase clipped_case(const model::ModelConfig& model, double threshold, double alpha = 0.5) {
    TrainingCase c;
    c.model = model;
    c.micro_batches = 5;
    c.steps = 4;
    c.qk_clip = {threshold, alpha};
    return c;
}

std::size_t find(const model::ModelSpec& spec, const std::string& name) {
    for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
        if (spec.parameters[i].name == name) return i;
    }
    throw std::runtime_error("the model has no parameter " + name);
}

/// after / before of rows [first, first + count) of a parameter; they must all have one quotient.
double quotient(const TrainingOutcome& after, const TrainingOutcome& before, std::size_t parameter, std::int64_t width,
                std::int64_t first, std::int64_t count) {
    double result = 0.0;
    std::size_t compared = 0;
    for (auto i = static_cast<std::size_t>(first * width); i < static_cast<std::size_t>((first + count) * width); ++i) {
        const auto x = static_cast<double>(before.weights[parameter].at(i));
        if (x == 0.0) continue;
        const double ratio = static_cast<double>(after.weights[parameter].at(i)) / x;
        if (compared++ == 0) result = ratio;
        CHECK(ratio == Approx(result).epsilon(1e-5));
    }
    REQUIRE(compared > 0);
    return result;
}

}  // namespace

TEST_CASE("QK-clip gives the same bits and the same logits on any ranks under every strategy") {
    for (const model::ModelConfig& model : {test::uneven_gpt2(), test::uneven_llama()}) {
        for (const bool matrices : {true, false}) {  // without a matrix optimizer rows of a projection are spread
            TrainingCase c = clipped_case(model, kThreshold, 0.3);
            c.use_matrix_optimizer = matrices;
            const TrainingOutcome reference = run_training(c);
            TrainingCase free = c;
            free.qk_clip = {};
            CHECK(run_training(free).weights != reference.weights);
            for (const int ranks : {1, 2, 3, 5, 8}) {
                for (const Strategy strategy : {Strategy::ddp, Strategy::zero1_owner, Strategy::matrix_fsdp}) {
                    c.ranks = ranks;
                    c.strategy = strategy;
                    INFO("ranks " << ranks << ", strategy " << static_cast<int>(strategy) << ", matrices " << matrices);
                    const TrainingOutcome outcome = run_training(c);
                    CHECK(outcome.losses == reference.losses);
                    CHECK(outcome.max_logits == reference.max_logits);
                    CHECK(outcome.weights == reference.weights);
                }
            }
        }
    }
}

TEST_CASE("QK-clip multiplies query and key rows of a group by its factor, and nothing else") {
    constexpr double kAlpha = 0.3;
    for (const bool gpt2 : {true, false}) {
        TrainingCase c = clipped_case(gpt2 ? test::uneven_gpt2() : test::uneven_llama(), kThreshold, kAlpha);
        c.steps = 1;
        TrainingCase free = c;
        free.qk_clip = {1e30, 0.5};  // measured and never exceeded
        const TrainingOutcome clipped = run_training(c), plain = run_training(free);
        CHECK(clipped.max_logits == plain.max_logits);
        const model::ModelSpec spec = model::describe_model(c.model);
        const std::int64_t heads = c.model.num_attention_heads, keys = c.model.num_key_value_heads;
        const std::int64_t size = c.model.head_dim, width = c.model.hidden_size;
        REQUIRE(clipped.max_logits.front().size() == static_cast<std::size_t>(spec.blocks() * heads));
        std::vector<std::vector<float>> rest = clipped.weights;
        int exceeded = 0;
        for (std::int64_t block = 0; block < spec.blocks(); ++block) {
            const std::string prefix = gpt2 ? "transformer.h." + std::to_string(block) + ".attn.c_attn"
                                            : "model.layers." + std::to_string(block) + ".self_attn.";
            const std::size_t query = find(spec, gpt2 ? prefix + ".weight" : prefix + "q_proj.weight");
            const std::size_t key = gpt2 ? query : find(spec, prefix + "k_proj.weight");
            const std::int64_t key_begin = gpt2 ? heads * size : 0;
            for (std::int64_t group = 0; group < keys; ++group) {
                const std::int64_t in_group = heads / keys;
                const auto first =
                    clipped.max_logits.front().begin() + static_cast<std::ptrdiff_t>(block * heads + group * in_group);
                const auto largest = static_cast<double>(*std::max_element(first, first + in_group));
                const double gamma = largest > kThreshold ? kThreshold / largest : 1.0;
                exceeded += gamma < 1.0 ? 1 : 0;
                const std::int64_t query_rows = in_group * size;
                CHECK(quotient(clipped, plain, query, width, group * query_rows, query_rows) ==
                      Approx(std::pow(gamma, kAlpha)).epsilon(1e-5));
                CHECK(quotient(clipped, plain, key, width, key_begin + group * size, size) ==
                      Approx(std::pow(gamma, 1.0 - kAlpha)).epsilon(1e-5));
            }
            // What is not query or key keeps every bit.
            const auto restore = [&](std::size_t parameter, std::int64_t begin, std::int64_t count) {
                std::copy_n(plain.weights[parameter].begin() + begin, count, rest[parameter].begin() + begin);
            };
            restore(query, 0, heads * size * width);
            restore(key, key_begin * width, keys * size * width);
            if (gpt2) {
                restore(find(spec, prefix + ".bias"), 0, (heads + keys) * size);
            } else if (c.model.attention_bias) {
                restore(find(spec, prefix + "q_proj.bias"), 0, heads * size);
                restore(find(spec, prefix + "k_proj.bias"), 0, keys * size);
            }
        }
        CHECK(exceeded > 0);
        CHECK((rest == plain.weights));
    }
}

TEST_CASE("the bias of a fused projection is clipped like its rows") {
    TrainingCase c = clipped_case(test::uneven_gpt2(), kThreshold);
    c.steps = 1;
    TrainingCase free = c;
    free.qk_clip = {1e30, 0.5};
    const TrainingOutcome clipped = run_training(c), plain = run_training(free);
    const model::ModelSpec spec = model::describe_model(c.model);
    const std::size_t bias = find(spec, "transformer.h.0.attn.c_attn.bias");
    const std::int64_t size = c.model.head_dim;
    for (std::int64_t head = 0; head < c.model.num_attention_heads; ++head) {
        const auto largest = static_cast<double>(clipped.max_logits.front().at(static_cast<std::size_t>(head)));
        if (largest <= kThreshold) continue;
        CHECK(quotient(clipped, plain, bias, 1, head * size, size) ==
              Approx(std::sqrt(kThreshold / largest)).epsilon(1e-5));
    }
}

TEST_CASE("logits are those of each step, and validation leaves them alone") {
    TrainingCase c = clipped_case(test::uneven_llama(), 1e30);
    c.evaluated_micro_batches = 2;
    c.samples = true;
    c.recompute = model::RecomputeMode::attention;
    const TrainingOutcome busy = run_training(c);
    c.evaluated_micro_batches = 0;
    c.samples = false;
    c.recompute = model::RecomputeMode::none;
    const TrainingOutcome plain = run_training(c);
    CHECK(busy.max_logits == plain.max_logits);
    REQUIRE(plain.max_logits.size() == 4);
    CHECK(plain.max_logits[0] != plain.max_logits[1]);
    for (const float logit : plain.max_logits.front()) CHECK(std::isfinite(logit));
}
