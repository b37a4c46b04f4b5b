#include "support/catch.h"
#include "support/training_run.h"

#include <cmath>
#include <cstring>
#include <string>

// What a run may be asked for beyond plain training: low precision, recomputation, frozen parameters, z-loss, large
// vocabularies, validation, sampling, steps that are not finite. Each gives the same bits on any number of ranks under
// every strategy; the second source is ddp on one rank.

using namespace mfsdp;
using runtime::NumberType;
using runtime::Strategy;
using test::run_training;
using test::TrainingCase;
using test::TrainingOutcome;

namespace {

/// gpt2 with a tied table of three panels, or llama with two untied ones.
model::ModelConfig large_vocabulary(bool tied) {
    model::ModelConfig model = tied ? test::uneven_gpt2() : test::uneven_llama();
    model.vocab_size = 9001;
    model.num_hidden_layers = 1;
    return model;
}

TrainingCase small_case(const model::ModelConfig& model) {
    TrainingCase c;
    c.model = model;
    c.micro_batches = 5;
    c.steps = 3;
    return c;
}

TrainingCase in_bfloat16(const model::ModelConfig& model) {
    TrainingCase c = small_case(model);
    c.param_dtype = c.grad_dtype = NumberType::bfloat16;
    return c;
}

void require_same_weights(const TrainingOutcome& outcome, const TrainingOutcome& reference) {
    REQUIRE(reference.weights.size() > 5);
    REQUIRE(outcome.weights.size() == reference.weights.size());
    for (std::size_t i = 0; i < reference.weights.size(); ++i) {
        INFO("parameter " << i);
        REQUIRE(!reference.weights[i].empty());
        REQUIRE(outcome.weights[i] == reference.weights[i]);
    }
}

void require_same(const TrainingOutcome& outcome, const TrainingOutcome& reference) {
    REQUIRE(!reference.losses.empty());
    REQUIRE(outcome.losses == reference.losses);
    REQUIRE(outcome.norms == reference.norms);
    REQUIRE(outcome.z_losses == reference.z_losses);
    REQUIRE(outcome.skipped == reference.skipped);
    REQUIRE(outcome.sampled == reference.sampled);
    REQUIRE(outcome.evaluations.size() == reference.evaluations.size());
    for (std::size_t i = 0; i < reference.evaluations.size(); ++i) {
        REQUIRE(outcome.evaluations[i].sum == reference.evaluations[i].sum);
        REQUIRE(outcome.evaluations[i].targets == reference.evaluations[i].targets);
    }
    require_same_weights(outcome, reference);
}

/// Runs `base` under every strategy on several ranks and compares with ddp on one, which it returns.
TrainingOutcome everywhere(TrainingCase base) {
    base.ranks = 1;
    base.strategy = Strategy::ddp;
    TrainingOutcome reference = run_training(base);
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1_owner, Strategy::matrix_fsdp}) {
        for (const int ranks : {1, 2, 3, 8}) {
            base.strategy = strategy;
            base.ranks = ranks;
            INFO("strategy " << static_cast<int>(strategy) << ", ranks " << ranks);
            require_same(run_training(base), reference);
        }
    }
    return reference;
}

}  // namespace

TEST_CASE("bfloat16 weights and gradients give the same bits on any ranks and stay close to float32") {
    for (const model::ModelConfig& model : {test::uneven_gpt2(), test::uneven_llama()}) {
        TrainingCase c = in_bfloat16(model);
        const TrainingOutcome low = everywhere(c);
        for (const std::vector<float>& values : low.weights) {
            for (const float value : values) {
                std::uint32_t bits = 0;
                std::memcpy(&bits, &value, sizeof bits);
                REQUIRE((bits & 0xFFFFU) == 0);  // weights at rest are bfloat16
            }
        }
        c.param_dtype = c.grad_dtype = NumberType::float32;
        const TrainingOutcome full = run_training(c);
        REQUIRE(low.losses != full.losses);
        // bfloat16 keeps 8 bits: a loss near 3 differs by far less than 1 %.
        for (std::size_t i = 0; i < full.losses.size(); ++i)
            CHECK(low.losses[i] == Approx(full.losses[i]).epsilon(0.01));
    }
}

TEST_CASE("gradients may have another type than weights") {
    TrainingCase c = small_case(test::uneven_llama());
    c.param_dtype = NumberType::bfloat16;
    const TrainingOutcome mixed = everywhere(c);
    c.grad_dtype = NumberType::bfloat16;
    CHECK(mixed.norms != run_training(c).norms);
    c.param_dtype = NumberType::float32;
    const TrainingOutcome leaves = everywhere(c);
    c.grad_dtype = NumberType::float32;
    const TrainingOutcome full = run_training(c);
    CHECK(leaves.losses.front() == full.losses.front());  // forward knows nothing of it
    CHECK(leaves.norms != full.norms);
    CHECK(leaves.norms.front() == Approx(full.norms.front()).epsilon(0.01));
}

TEST_CASE("masters keep what a bfloat16 weight cannot: small updates add up") {
    TrainingCase c = in_bfloat16(test::uneven_gpt2());
    c.use_matrix_optimizer = false;
    c.learning_rate = 1e-5;  // less than half the distance between neighbours of bfloat16 above 0.01
    c.steps = 1;
    const TrainingOutcome one = run_training(c);
    c.steps = 40;
    const TrainingOutcome many = run_training(c);
    std::int64_t large = 0, moved = 0;
    for (std::size_t i = 0; i < one.weights.size(); ++i) {
        for (std::size_t j = 0; j < one.weights[i].size(); ++j) {
            if (std::fabs(one.weights[i][j]) < 0.01F || std::fabs(one.weights[i][j]) > 0.1F) continue;
            ++large;
            moved += many.weights[i][j] != one.weights[i][j] ? 1 : 0;
        }
    }
    REQUIRE(large > 1000);
    CHECK(moved > large / 2);
}

TEST_CASE("a table of several panels gives the same bits on any ranks, tied and untied, in both types") {
    for (const bool tied : {true, false}) {
        const model::ModelConfig model = large_vocabulary(tied);
        REQUIRE(model::describe_model(model).panels() == 3);
        everywhere(small_case(model));
        TrainingCase c = in_bfloat16(model);
        c.prefetch_units = 2;
        everywhere(c);
        c.reshard_after_forward = false;
        c.device.asynchronous_streams = true;
        everywhere(c);
    }
}

TEST_CASE("recomputation changes no bit") {
    for (const bool low : {false, true}) {
        for (const model::ModelConfig& model : {test::uneven_gpt2(), test::uneven_llama()}) {
            TrainingCase c = low ? in_bfloat16(model) : small_case(model);
            c.ranks = 3;
            c.strategy = Strategy::matrix_fsdp;
            const TrainingOutcome kept = run_training(c);
            std::int64_t before = kept.ranks[0].memory[static_cast<std::size_t>(device::MemoryCategory::activations)];
            for (const model::RecomputeMode mode : {model::RecomputeMode::attention, model::RecomputeMode::block}) {
                c.recompute = mode;
                for (const std::int64_t every : {2, 1}) {
                    c.recompute_every = every;
                    const TrainingOutcome again = run_training(c);
                    require_same(again, kept);
                    if (every == 2) continue;
                    const std::int64_t now =
                        again.ranks[0].memory[static_cast<std::size_t>(device::MemoryCategory::activations)];
                    CHECK(now <= before);
                    before = now;
                }
            }
        }
    }
}

TEST_CASE("frozen parameters keep their bits, are not reduced and not in the norm") {
    for (const model::ModelConfig& model : {test::uneven_gpt2(), large_vocabulary(true)}) {
        TrainingCase c = small_case(model);
        c.clip_grad = 0.0;
        const TrainingOutcome trained = everywhere(c);
        c.frozen = {"transformer.wte.weight", "*.h.0.attn.*", "*.ln_f.bias"};
        const TrainingOutcome outcome = everywhere(c);
        CHECK(outcome.losses.front() == trained.losses.front());
        CHECK(outcome.norms.front() < trained.norms.front());
        TrainingCase start = c;
        start.steps = 0;
        const TrainingOutcome initial = run_training(start);
        const model::ModelSpec spec = model::describe_model(model);
        std::int64_t frozen = 0;
        for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
            const std::string& name = spec.parameters[i].name;
            const bool is_frozen = name == "transformer.wte.weight" || name.find(".h.0.attn.") != std::string::npos ||
                                   name == "transformer.ln_f.bias";
            INFO(name);
            CHECK((outcome.weights[i] == initial.weights[i]) == is_frozen);
            frozen += is_frozen ? 1 : 0;
        }
        REQUIRE(frozen == 6);
        // Neither gradients nor state are kept for them, and their leaves do not travel.
        c.ranks = 3;
        c.strategy = Strategy::matrix_fsdp;
        TrainingCase all = c;
        all.frozen.clear();
        const TrainingOutcome less = run_training(c), more = run_training(all);
        for (const device::MemoryCategory category :
             {device::MemoryCategory::gradients, device::MemoryCategory::state}) {
            std::int64_t sum_less = 0, sum_more = 0;
            for (int rank = 0; rank < 3; ++rank) {
                sum_less += less.ranks[static_cast<std::size_t>(rank)].memory[static_cast<std::size_t>(category)];
                sum_more += more.ranks[static_cast<std::size_t>(rank)].memory[static_cast<std::size_t>(category)];
            }
            CHECK(sum_less < sum_more);
        }
        CHECK(less.facts.front().reduce_bytes < more.facts.front().reduce_bytes);
    }
}

TEST_CASE("z-loss pulls log Z towards zero, and gives the same bits everywhere") {
    TrainingCase c = small_case(test::uneven_llama());
    c.z_loss = 0.5;
    c.steps = 10;
    const TrainingOutcome pulled = everywhere(c);
    CHECK(pulled.z_losses.back() < pulled.z_losses.front());
    c.z_loss = 0.0;
    const TrainingOutcome plain = run_training(c);
    CHECK(plain.losses.front() == pulled.losses.front());  // z-loss is not part of the loss
    CHECK(plain.z_losses.front() == 0.0);
    CHECK(plain.norms.front() != pulled.norms.front());
}

TEST_CASE("validation and sampling give the same values on any ranks and do not change training") {
    for (const bool low : {false, true}) {
        for (const model::ModelConfig& model : {test::uneven_gpt2(), large_vocabulary(false)}) {
            TrainingCase c = low ? in_bfloat16(model) : small_case(model);
            const TrainingOutcome undisturbed = run_training(c);
            for (const std::int64_t micro_batches : {1, 4}) {  // fewer than ranks, and a number they do not divide
                c.evaluated_micro_batches = micro_batches;
                c.samples = true;
                const TrainingOutcome outcome = everywhere(c);
                REQUIRE(outcome.evaluations.size() == 3);
                REQUIRE(outcome.evaluations.front().targets > 0);
                CHECK(outcome.evaluations.front().sum > outcome.evaluations.back().sum);
                REQUIRE(outcome.sampled.size() == 3);
                CHECK(outcome.losses == undisturbed.losses);
                require_same_weights(outcome, undisturbed);
            }
        }
    }
}

TEST_CASE("validation reports the loss that training reports for the same tokens and weights") {
    TrainingCase c = small_case(test::uneven_llama());
    c.evaluated_micro_batches = c.micro_batches;
    c.steps = 1;
    c.learning_rate = 1e-30;  // the weights keep their bits
    c.same_tokens = true;
    const TrainingOutcome outcome = run_training(c);
    const runtime::MicroBatchLoss& evaluation = outcome.evaluations.front();
    CHECK(evaluation.sum / static_cast<double>(evaluation.targets) == outcome.losses.front());
}

TEST_CASE("traffic and times of a step do not contain validation and sampling") {
    TrainingCase c = small_case(test::uneven_gpt2());
    c.ranks = 3;
    c.strategy = Strategy::zero1_owner;
    const TrainingOutcome plain = run_training(c);
    c.strategy = Strategy::matrix_fsdp;
    const TrainingOutcome gathering = run_training(c);
    c.evaluated_micro_batches = 4;
    c.samples = true;
    const TrainingOutcome disturbed = run_training(c);
    c.strategy = Strategy::zero1_owner;
    const TrainingOutcome publishing = run_training(c);
    REQUIRE(gathering.facts.front().gather_bytes > 0);
    for (std::size_t step = 0; step < plain.facts.size(); ++step) {
        CHECK(disturbed.facts[step].gather_bytes == gathering.facts[step].gather_bytes);
        CHECK(publishing.facts[step].gather_bytes == plain.facts[step].gather_bytes);
        CHECK(publishing.facts[step].optimizer_bytes == plain.facts[step].optimizer_bytes);
    }
    CHECK(disturbed.ranks.front().memory == runtime::rehearse(test::training_plan([&] {
                                                                  TrainingCase d = c;
                                                                  d.strategy = Strategy::matrix_fsdp;
                                                                  return d;
                                                              }()),
                                                              0)
                                                .memory);
}

TEST_CASE("a step that is not finite on one rank leaves all state untouched on every rank") {
    for (const bool low : {false, true}) {
        TrainingCase c = low ? in_bfloat16(test::uneven_gpt2()) : small_case(test::uneven_gpt2());
        c.steps = 4;
        c.poisoned_step = 3;
        TrainingCase reference_case = c;
        reference_case.poisoned_step = 0;
        reference_case.left_out_step = 3;  // the same run without that step
        const TrainingOutcome reference = run_training(reference_case);
        for (const Strategy strategy : {Strategy::ddp, Strategy::zero1_owner, Strategy::matrix_fsdp}) {
            for (const int ranks : {1, 3, 8}) {
                c.strategy = strategy;
                c.ranks = ranks;
                INFO("strategy " << static_cast<int>(strategy) << ", ranks " << ranks);
                const TrainingOutcome outcome = run_training(c);
                CHECK(outcome.skipped == std::vector<bool>{false, false, true, false});
                REQUIRE(outcome.norms.size() == 4);
                CHECK(std::isnan(outcome.norms[2]));  // not the norm of the rows that are finite
                CHECK(outcome.losses.back() == reference.losses.back());
                require_same_weights(outcome, reference);
            }
        }
    }
}

TEST_CASE("a batch cut into micro-batches of other sizes gives the same loss and gradients within rounding") {
    TrainingCase c = small_case(test::uneven_llama());
    c.same_tokens = true;
    c.steps = 2;
    c.micro_batch_size = 8;
    c.micro_batches = 1;
    const TrainingOutcome whole = run_training(c);
    for (const std::int64_t size : {4, 2, 1}) {
        c.micro_batch_size = size;
        c.micro_batches = 8 / size;
        const TrainingOutcome cut = run_training(c);
        for (std::size_t step = 0; step < whole.losses.size(); ++step) {
            CHECK(cut.losses[step] == Approx(whole.losses[step]).epsilon(1e-6));
            CHECK(cut.norms[step] == Approx(whole.norms[step]).epsilon(1e-6));
            CHECK(cut.facts[step].loss.targets == whole.facts[step].loss.targets);
        }
    }
}

TEST_CASE("the health of matrices is the same on any ranks, changes no bit, and tells what it says") {
    TrainingCase c = small_case(test::uneven_gpt2());
    const TrainingOutcome unmeasured = run_training(c);
    c.measures_health = true;
    const TrainingOutcome outcome = everywhere(c);
    require_same_weights(outcome, unmeasured);
    const runtime::RunPlan run = test::training_plan(c);
    std::size_t matrices = 0;
    for (const optim::Role role : run.roles) matrices += role == optim::Role::matrix ? 1 : 0;
    REQUIRE(matrices > 0);
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1_owner, Strategy::matrix_fsdp}) {
        for (const int ranks : {1, 3}) {
            c.strategy = strategy;
            c.ranks = ranks;
            const TrainingOutcome other = run_training(c);
            REQUIRE(other.health.size() == matrices);
            for (std::size_t i = 0; i < matrices; ++i) {
                CHECK(other.health[i].parameter == outcome.health[i].parameter);
                CHECK(other.health[i].update_ratio == outcome.health[i].update_ratio);
                CHECK(other.health[i].orthogonality_error == outcome.health[i].orthogonality_error);
                CHECK(other.health[i].gradient_rms == outcome.health[i].gradient_rms);
                CHECK(other.health[i].gradient_rms > 0.0);
            }
        }
    }
    // The second source: the update of the last step as the difference of two runs.
    TrainingCase shorter = c;
    shorter.steps = c.steps - 1;
    const TrainingOutcome before = run_training(shorter);
    for (const runtime::MatrixHealth& health : outcome.health) {
        const auto p = static_cast<std::size_t>(health.parameter);
        double update = 0.0, weight = 0.0;
        for (std::size_t i = 0; i < before.weights[p].size(); ++i) {
            update +=
                std::pow(static_cast<double>(outcome.weights[p][i]) - static_cast<double>(before.weights[p][i]), 2);
            weight += std::pow(static_cast<double>(before.weights[p][i]), 2);
        }
        CHECK(health.update_ratio == Approx(std::sqrt(update / weight)).epsilon(1e-5));
        // Five quintic steps leave singular values of 0.98 to 1.03 where the gradient is not rank-deficient.
        CHECK(health.orthogonality_error < 0.7);
    }
}

TEST_CASE("the orthogonality error of an update is that of its singular values") {
    const std::unique_ptr<device::Device> device = device::make_cpu_device({});
    const std::unique_ptr<device::Stream> stream = device->make_stream();
    device::MemoryLedger ledger;
    device::BufferPool workspace(*device, ledger, device::MemoryCategory::workspace, 65536);
    // An optimizer whose direction is the gradient itself: singular values 3 and 1 on a 2 x 3 matrix.
    struct Plain final : optim::MatrixOptimizer {
        [[nodiscard]] std::string name() const override { return "plain"; }
        [[nodiscard]] std::vector<optim::StateSpec> block_states(std::int64_t, std::int64_t) const override {
            return {};
        }
        [[nodiscard]] optim::OptimizerCost cost(std::int64_t, std::int64_t) const override { return {}; }
        void accumulate(device::Stream& s, const device::Tensor& input, const device::Tensor& /*square_sums*/,
                        const device::Tensor& gradient, std::span<const device::Tensor>,
                        const device::GradientScale&) override {
            device::launch(s, device::Copy{.out = input, .in = gradient});
        }
        void direction(device::Stream& s, device::BufferPool&, std::span<const optim::BlockWork> blocks,
                       std::int64_t) override {
            for (const optim::BlockWork& block : blocks) {
                if (block.out.data != block.input.data)
                    device::launch(s, device::Copy{.out = block.out, .in = block.input});
            }
        }
        [[nodiscard]] optim::WeightRule weight_rule(std::int64_t, std::int64_t, double rate, double decay,
                                                    std::int64_t) const override {
            return {.decay = static_cast<float>(1.0 - rate * decay), .step = static_cast<float>(rate)};
        }
    } plain;
    const device::Buffer memory(*device, ledger, device::MemoryCategory::weights, 1024);
    const device::Tensor weight = memory.view(device::DType::float32, {2, 3});
    const device::Tensor gradient = memory.view(device::DType::float32, {2, 3}, 512);
    const std::vector<float> w{1, 2, 3, 4, 5, 6}, g{3, 0, 0, 0, 1, 0};
    device::launch(*stream, device::CopyFromHost{weight, w.data()});
    device::launch(*stream, device::CopyFromHost{gradient, g.data()});
    optim::MatrixStep step{
        .weight = weight, .gradient = gradient, .states = {}, .learning_rate = 0.5, .weight_decay = 0.1};
    const runtime::MatrixHealth health = runtime::step_and_measure(*stream, workspace, plain, step);
    // Scaled to a sum of squares of 2: squares 1.8 and 0.2, so |O O^T - I|^2 / 2 = (0.8^2 + 0.8^2) / 2.
    CHECK(health.orthogonality_error == Approx(0.8).epsilon(1e-5));
    CHECK(health.gradient_rms == Approx(std::sqrt(10.0 / 6.0)));
    double update = 0.0;
    for (std::size_t i = 0; i < 6; ++i) update += std::pow(0.05 * w[i] + 0.5 * g[i], 2);
    CHECK(health.update_ratio == Approx(std::sqrt(update / 91.0)).epsilon(1e-5));
}

TEST_CASE("the gradient that optimizers see is the mean over targets, clipped to its limit") {
    // Muon and AdamW hardly feel the length of a gradient. With an epsilon of 1 the first AdamW update is
    // g / (|g| + 1), so that the gradient can be read off the weights.
    for (const double limit : {0.0, 0.05}) {
        for (const int ranks : {1, 3}) {
            TrainingCase c = small_case(test::uneven_llama());
            c.use_matrix_optimizer = false;
            c.element_epsilon = 1.0;
            c.weight_decay = 0.0;
            c.learning_rate = 1.0;
            c.clip_grad = limit;
            c.ranks = ranks;
            c.strategy = Strategy::matrix_fsdp;
            c.steps = 0;
            const TrainingOutcome start = run_training(c);
            c.steps = 1;
            const TrainingOutcome after = run_training(c);
            double squares = 0.0;
            for (std::size_t i = 0; i < start.weights.size(); ++i) {
                for (std::size_t j = 0; j < start.weights[i].size(); ++j) {
                    const double update =
                        std::fabs(static_cast<double>(start.weights[i][j]) - static_cast<double>(after.weights[i][j]));
                    squares += std::pow(update / (1.0 - update), 2);
                }
            }
            REQUIRE(after.norms.front() > 0.1);
            CHECK(std::sqrt(squares) == Approx(limit > 0.0 ? limit : after.norms.front()).epsilon(1e-4));
        }
    }
}
