#include "mfsdp/optim/muon.h"

#include "optim/bench.h"
#include "optim/newton_schulz_reference.h"
#include "optim/optimizer_run.h"
#include "support/catch.h"

#include <cmath>

using namespace mfsdp;
using namespace mfsdp::optim;
using namespace mfsdp::optim::test;

namespace {

/// Rows of a matrix, [begin, begin + count).
Exact rows_of(const Exact& matrix, std::int64_t begin, std::int64_t count) {
    Exact result(count, matrix.columns);
    for (std::int64_t r = 0; r < count; ++r) {
        for (std::int64_t c = 0; c < matrix.columns; ++c) result.at(r, c) = matrix.at(begin + r, c);
    }
    return result;
}

double reference_scale(ScaleMode mode, double r, double c) {
    if (mode == ScaleMode::match_rms_adamw) return 0.2 * std::sqrt(std::max(r, c));
    if (mode == ScaleMode::original) return std::sqrt(std::max(1.0, r / c));
    return std::sqrt(mode == ScaleMode::unit_rms_norm ? r / c : std::max(r, c));
}

/// One step of docs/optimizers.md, Muon, written as a loop in double.
void reference_step(const MuonOptions& options, double lr, double wd, const std::vector<model::RowBlock>& blocks,
                    const Exact& gradient, Exact& momentum, Exact& weight) {
    const bool ema = options.momentum_form == MomentumForm::ema;
    const double beta = options.momentum;
    Exact update = momentum;
    for (std::size_t i = 0; i < gradient.values.size(); ++i) {
        const double g = (ema ? 1.0 - beta : 1.0) * gradient.values[i];
        momentum.values[i] = beta * momentum.values[i] + g;
        update.values[i] = options.nesterov ? g + beta * momentum.values[i] : momentum.values[i];
    }
    for (const model::RowBlock& block : blocks) {
        const Exact o = newton_schulz_loop(rows_of(update, block.row_begin, block.row_count), options.coefficient_type,
                                           options.num_ns_steps);
        const double scale =
            options.extra_scale_factor *
            reference_scale(options.scale_mode, static_cast<double>(o.rows), static_cast<double>(o.columns));
        for (std::int64_t r = 0; r < o.rows; ++r) {
            for (std::int64_t c = 0; c < o.columns; ++c) {
                double& w = weight.at(block.row_begin + r, c);
                w = (1.0 - lr * wd) * w - lr * scale * o.at(r, c);
            }
        }
    }
}

/// A matrix under Muon on a device.
struct Run {
    Bench& bench;
    std::unique_ptr<MatrixOptimizer> optimizer;
    device::Tensor weight, momentum;
    std::vector<model::RowBlock> blocks{};
    double learning_rate = 0.05, weight_decay = 0.1;
    std::int64_t steps = 0;

    Run(Bench& b, const MuonOptions& options, const Matrix& initial)
        : bench(b),
          optimizer(make_muon(options)),
          weight(b.upload(initial)),
          momentum(b.zeros(initial.rows, initial.columns)) {}

    void step(const Matrix& gradient, device::GradientScale scale = {}) {
        const device::Tensor source = bench.upload(gradient);
        const device::Tensor states[] = {momentum};
        optimizer->step(bench.stream(), bench.workspace(),
                        {.weight = weight,
                         .gradient = source,
                         .states = states,
                         .blocks = blocks,
                         .gradient_scale = scale,
                         .learning_rate = learning_rate,
                         .weight_decay = weight_decay,
                         .step = ++steps});
        CHECK(same_bits(bench.download(source), gradient));
    }
};

const Matrix kWeight = convert<float>(gaussian(12, 7, 20));
const Matrix kGradient = convert<float>(gaussian(12, 7, 21));

}  // namespace

TEST_CASE("Muon follows a plain double loop in every momentum form and scale mode, whole and in row blocks",
          "[optim]") {
    Bench bench;
    const std::vector<model::RowBlock> whole{{"all", 0, 12}};
    const std::vector<model::RowBlock> split{{"q", 0, 3}, {"k", 3, 1}, {"v", 4, 8}};
    for (const MomentumForm form : {MomentumForm::ema, MomentumForm::heavy_ball}) {
        for (const bool nesterov : {true, false}) {
            for (const ScaleMode mode :
                 {ScaleMode::match_rms_adamw, ScaleMode::original, ScaleMode::unit_rms_norm, ScaleMode::spectral}) {
                for (const auto& blocks : {whole, split}) {
                    const MuonOptions options{.momentum = 0.9,
                                              .momentum_form = form,
                                              .nesterov = nesterov,
                                              .scale_mode = mode,
                                              .extra_scale_factor = 1.5};
                    Run run(bench, options, kWeight);
                    if (blocks.size() > 1) run.blocks = blocks;
                    Exact weight = convert<double>(kWeight), momentum(12, 7);
                    for (std::uint64_t k = 0; k < 4; ++k) {
                        const Exact gradient = gaussian(12, 7, 30 + k);
                        run.step(convert<float>(gradient));
                        reference_step(options, run.learning_rate, run.weight_decay, blocks, gradient, momentum,
                                       weight);
                        CHECK(error_of(bench.download(run.momentum), momentum) < 2e-6);
                        CHECK(error_of(bench.download(run.weight), weight) < 2e-5);
                    }
                }
            }
        }
    }
}

TEST_CASE("Muon scales a direction by the shape of its block as the table says", "[optim]") {
    struct Case {
        ScaleMode mode;
        double tall, wide;  // (14336, 4096) and (1024, 4096)
    };
    const std::vector<Case> cases{{ScaleMode::match_rms_adamw, 23.9466, 12.8},
                                  {ScaleMode::original, 1.8708, 1.0},
                                  {ScaleMode::unit_rms_norm, 1.8708, 0.5},
                                  {ScaleMode::spectral, 119.733, 64.0}};
    for (const Case& expected : cases) {
        CHECK(muon_scale({.scale_mode = expected.mode}, 14336, 4096) == Approx(expected.tall).epsilon(2e-5));
        CHECK(muon_scale({.scale_mode = expected.mode}, 1024, 4096) == Approx(expected.wide).epsilon(1e-5));
        const MuonOptions tripled{.scale_mode = expected.mode, .extra_scale_factor = 3.0};
        CHECK(muon_scale(tripled, 1024, 4096) == Approx(3.0 * expected.wide).epsilon(1e-5));
        const WeightRule rule = make_muon(tripled)->weight_rule(1024, 4096, 0.5, 0.1, 1);
        CHECK(static_cast<double>(rule.step) == Approx(0.5 * 3.0 * expected.wide).epsilon(1e-5));
        CHECK(rule.decay == static_cast<float>(1.0 - 0.5 * 0.1));
    }
}

TEST_CASE("Muon declares its state and its FLOPs", "[optim]") {
    const auto muon = make_muon({});
    CHECK(muon->name() == "muon");
    const auto states = muon->states(6, 4);
    REQUIRE(states.size() == 1);
    CHECK(states[0].name == "momentum");
    CHECK(states[0].shape == std::vector<std::int64_t>{6, 4});
    CHECK(states[0].element);
    const auto flops = [](const MatrixOptimizer& optimizer, std::int64_t rows, std::int64_t columns) {
        const OptimizerCost cost = optimizer.cost(rows, columns);
        CHECK(cost.worst().flops() == cost.mean().flops());
        return cost.mean().flops();
    };
    CHECK(static_cast<double>(flops(*muon, 4096, 4096)) / 1e9 == Approx(1374).margin(0.6));
    CHECK(static_cast<double>(flops(*muon, 14336, 4096)) / 1e9 == Approx(3951).margin(0.6));
    CHECK(flops(*muon, 4096, 14336) == flops(*muon, 14336, 4096));
    CHECK(flops(*make_muon({.num_ns_steps = 1}), 2, 3) == 3 * 4 * 3 + 8);
}

TEST_CASE("A Muon step on the counting device costs its stated FLOPs and the same workspace", "[optim]") {
    const std::int64_t rows = 384, columns = 128;
    const auto muon = make_muon({});
    const auto counting = device::make_counting_device({});
    const auto stream = counting->make_stream();
    device::MemoryLedger ledger;
    device::BufferPool pool(*counting, ledger, device::MemoryCategory::workspace, -1);
    std::vector<device::Buffer> buffers;
    const auto tensor = [&] {
        buffers.emplace_back(*counting, ledger, device::MemoryCategory::state, rows * columns * 4);
        return buffers.back().view(device::DType::float32, {rows, columns});
    };
    const device::Tensor weight = tensor(), gradient = tensor(), momentum = tensor();
    const device::Tensor states[] = {momentum};
    muon->step(*stream, pool, {.weight = weight, .gradient = gradient, .states = states});
    const auto counted = static_cast<double>(counting->total().flops);
    const auto stated = static_cast<double>(muon->cost(rows, columns).mean().flops());
    CHECK(counted >= stated);
    CHECK(counted <= 1.05 * stated);  // the rest is elementwise

    // The same in parts whose momentum leaves no sums of squares: reading the update once more is what that costs.
    const std::int64_t step_bytes = counting->total().bytes;
    muon->accumulate(*stream, gradient, {}, tensor(), states, {});
    const BlockWork work{
        .rows = rows, .columns = columns, .out = gradient, .input = gradient, .averages = {}, .states = {}};
    muon->direction(*stream, pool, std::span(&work, 1), 1);
    MatrixOptimizer::update(*stream, weight, gradient, muon->weight_rule(rows, columns, 0.1, 0.1, 1));
    CHECK(counting->total().bytes - step_bytes == step_bytes + rows * columns * 4);

    Bench bench;
    Run run(bench, {}, convert<float>(gaussian(rows, columns, 40)));
    run.step(convert<float>(gaussian(rows, columns, 41)));
    CHECK(bench.workspace().high_water() == pool.high_water());
    CHECK(pool.high_water() ==
          device::align_up(384 * 128 * 4) * 3 + device::align_up(128 * 128 * 4) * 2 + device::align_up(128 * 8) + 256);
}

TEST_CASE("A zero gradient with momentum is an ordinary step along the momentum", "[optim]") {
    Bench bench;
    Run run(bench, {}, kWeight);
    run.step(kGradient);
    const Matrix before = bench.download(run.weight);
    const Matrix momentum = bench.download(run.momentum);
    run.weight_decay = 0.0;
    run.step(Matrix(12, 7));
    const Matrix after = bench.download(run.weight);
    // The direction of beta^2 M, of full size: nothing of the step has shrunk with the gradient.
    const Exact direction = newton_schulz_loop(convert<double>(momentum), CoefficientType::quintic, 5);
    Exact want = convert<double>(before);
    for (std::size_t i = 0; i < want.values.size(); ++i) {
        want.values[i] -= 0.05 * 0.2 * std::sqrt(12.0) * direction.values[i];
    }
    CHECK(error_of(after, want) < 2e-6);
    CHECK(frobenius(direction) > 2.0);
}

TEST_CASE("With no gradient and no momentum only the decay acts, at the rate itself whatever the scale", "[optim]") {
    for (const double extra : {1.0, 100.0}) {
        Bench bench;
        Run run(bench, {.extra_scale_factor = extra}, kWeight);
        run.step(Matrix(12, 7));
        const Matrix got = bench.download(run.weight);
        const auto decay = static_cast<float>(1.0 - 0.05 * 0.1);
        CHECK(same_bits(got, scaled(kWeight, decay)));
    }
}

TEST_CASE("A learning rate of 0 leaves the weight and moves the momentum", "[optim]") {
    Bench bench;
    Run run(bench, {}, kWeight);
    run.learning_rate = 0.0;
    Exact momentum(12, 7);
    for (std::uint64_t k = 0; k < 3; ++k) {
        const Exact gradient = gaussian(12, 7, 50 + k);
        run.step(convert<float>(gradient));
        for (std::size_t i = 0; i < momentum.values.size(); ++i) {
            momentum.values[i] = 0.95 * momentum.values[i] + 0.05 * gradient.values[i];
        }
        CHECK(same_bits(bench.download(run.weight), kWeight));
        CHECK(error_of(bench.download(run.momentum), momentum) < 1e-6);
    }
}

TEST_CASE("The direction leaves its input and the state alone", "[optim]") {
    Bench bench;
    const auto muon = make_muon({});
    const device::Tensor in = bench.upload(kGradient), out = bench.make(12, 7), momentum = bench.upload(kWeight);
    const auto direction = [&](const device::Tensor& target) {
        const BlockWork block{.rows = 12, .columns = 7, .out = target, .input = in, .averages = {}, .states = {}};
        muon->direction(bench.stream(), bench.workspace(), std::span(&block, 1), 1);
    };
    direction(out);
    CHECK(same_bits(bench.download(in), kGradient));
    CHECK(same_bits(bench.download(momentum), kWeight));
    direction(in);
    CHECK(same_bits(bench.download(in), bench.download(out)));
}

TEST_CASE("Heavy-ball momentum gives the weights of the averaged form", "[optim]") {
    Bench bench;
    Run ema(bench, {.momentum_form = MomentumForm::ema}, kWeight);
    Run ball(bench, {.momentum_form = MomentumForm::heavy_ball}, kWeight);
    for (std::uint64_t k = 0; k < 3; ++k) {
        const Matrix gradient = convert<float>(gaussian(12, 7, 60 + k));
        ema.step(gradient);
        ball.step(gradient);
    }
    CHECK(error_of(bench.download(ball.weight), convert<double>(bench.download(ema.weight))) < 2e-6);
    CHECK(error_of(bench.download(ball.momentum), scaled(convert<double>(bench.download(ema.momentum)), 20.0)) < 2e-6);
}

TEST_CASE("Row blocks are matrices of their own", "[optim]") {
    Matrix gradient(2, 2);
    gradient.at(0, 0) = 1.0F;
    gradient.at(1, 0) = 10.0F;
    const MuonOptions options{
        .num_ns_steps = 10, .coefficient_type = CoefficientType::dsv4, .scale_mode = ScaleMode::original};
    for (const bool split : {false, true}) {
        Bench bench;
        Run run(bench, options, Matrix(2, 2));
        run.learning_rate = 1.0;
        if (split) run.blocks = {{"first", 0, 1}, {"second", 1, 1}};
        run.step(gradient);
        const Matrix got = bench.download(run.weight);
        CHECK(got.at(0, 0) == Approx(split ? -1.0 : -0.0995).epsilon(1e-3));
        CHECK(got.at(1, 0) == Approx(split ? -1.0 : -0.995).epsilon(1e-3));
    }
}

TEST_CASE("The step is taken on the gradient sum times 1/targets and then the clip factor, each rounded once",
          "[optim]") {
    Bench bench;
    const device::GradientScale scale{.inverse_targets = 1.0F / 37.0F, .clip = 0.3F};
    Matrix mean = kGradient;
    for (float& value : mean.values) value = value * scale.inverse_targets * scale.clip;
    Run summed(bench, {}, kWeight), averaged(bench, {}, kWeight);
    summed.step(kGradient, scale);
    averaged.step(mean);
    CHECK(same_bits(bench.download(summed.weight), bench.download(averaged.weight)));
    CHECK(same_bits(bench.download(summed.momentum), bench.download(averaged.momentum)));
}

TEST_CASE("Momentum accumulated in pieces of rows has the bits of the whole", "[optim]") {
    Bench bench;
    const auto muon = make_muon({});
    Matrix want_update, want_momentum;
    for (const std::vector<std::int64_t>& cut :
         {std::vector<std::int64_t>{12}, std::vector<std::int64_t>{5, 0, 7}, std::vector<std::int64_t>{1, 10, 1}}) {
        const device::Tensor gradient = bench.upload(kGradient), momentum = bench.upload(kWeight);
        const device::Tensor update = bench.make(12, 7);
        std::int64_t row = 0;
        for (const std::int64_t count : cut) {
            const device::Tensor states[] = {momentum.slice(0, row, count)};
            muon->accumulate(bench.stream(), update.slice(0, row, count), {}, gradient.slice(0, row, count), states,
                             {.inverse_targets = 0.1F, .clip = 0.7F});
            row += count;
        }
        if (cut.size() == 1) {
            want_update = bench.download(update);
            want_momentum = bench.download(momentum);
        }
        CHECK(same_bits(bench.download(update), want_update));
        CHECK(same_bits(bench.download(momentum), want_momentum));
    }
}

TEST_CASE("Muon points along ill-conditioned gradients and along one of rank one, in every type, step after step",
          "[optim]") {
    Bench bench({.threads = 2});
    for (const double condition : {1e2, 1e6, 1e10, HUGE_VAL}) {
        const Exact gradient = outer_products(12, 20, condition, 400);
        for (const device::DType dtype : {device::DType::float32, device::DType::bfloat16, device::DType::float16}) {
            for (const bool normuon : {false, true}) {
                for (const CoefficientType type : {CoefficientType::quintic, CoefficientType::simple,
                                                   CoefficientType::polar_express, CoefficientType::dsv4}) {
                    const auto muon = make_muon({.coefficient_type = type, .ns_dtype = dtype, .normuon = normuon});
                    INFO("condition " << condition << " in " << name(dtype) << ", normuon " << normuon << ", table "
                                      << static_cast<int>(type));
                    CHECK(descends(bench, *muon, gradient, 12));
                }
            }
        }
    }
}

TEST_CASE("NorMuon follows a plain double loop, whole and in row blocks", "[optim]") {
    Bench bench;
    const std::vector<model::RowBlock> whole{{"all", 0, 12}};
    const std::vector<model::RowBlock> split{{"q", 0, 3}, {"k", 3, 1}, {"v", 4, 8}};
    for (const auto& blocks : {whole, split}) {
        const auto muon = make_muon({.scale_mode = ScaleMode::original, .normuon = true, .normuon_beta2 = 0.8});
        OptimizerRun run(bench, *muon, kWeight, blocks.size() > 1 ? blocks : std::vector<model::RowBlock>{});
        Exact weight = convert<double>(kWeight), momentum(12, 7);
        std::vector<double> moment(12, 0.0);
        for (std::uint64_t t = 0; t < 4; ++t) {
            Exact gradient = gaussian(12, 7, 30 + t);
            for (std::int64_t c = 0; c < 7; ++c) gradient.at(5, c) = 0.0;  // a row that is never used
            run.step(convert<float>(gradient));
            Exact update = gradient;
            for (std::size_t i = 0; i < gradient.values.size(); ++i) {
                momentum.values[i] = 0.95 * momentum.values[i] + 0.05 * gradient.values[i];
                update.values[i] = 0.05 * gradient.values[i] + 0.95 * momentum.values[i];
            }
            for (const model::RowBlock& block : blocks) {
                Exact o =
                    newton_schulz_loop(rows_of(update, block.row_begin, block.row_count), CoefficientType::quintic, 5);
                const double before = frobenius(o);
                for (std::int64_t r = 0; r < o.rows; ++r) {
                    double& v = moment[static_cast<std::size_t>(block.row_begin + r)];
                    double squares = 0.0;
                    for (std::int64_t c = 0; c < 7; ++c) squares += o.at(r, c) * o.at(r, c);
                    v = 0.8 * v + 0.2 * squares / 7.0;
                    for (std::int64_t c = 0; c < 7; ++c) o.at(r, c) /= std::sqrt(v) + 1e-8;
                }
                const double ratio = before / frobenius(o);
                const double scale = reference_scale(ScaleMode::original, static_cast<double>(o.rows), 7.0);
                for (std::int64_t r = 0; r < o.rows; ++r) {
                    for (std::int64_t c = 0; c < 7; ++c) {
                        double& w = weight.at(block.row_begin + r, c);
                        w = (1.0 - 0.05 * 0.1) * w - 0.05 * scale * ratio * o.at(r, c);
                    }
                }
            }
            CHECK(error_of(run.weight(), weight) < 2e-5);
        }
        const Matrix got = run.state("row_exp_avg_sq", blocks.size() > 1 ? "v" : "");
        CHECK(got.values.size() == (blocks.size() > 1 ? 8U : 12U));
        CHECK(got.values[blocks.size() > 1 ? 1U : 5U] < 1e-12F);
    }
}

TEST_CASE("NorMuon leaves zero gradients at zero", "[optim]") {
    Bench bench;
    const auto muon = make_muon({.normuon = true});
    OptimizerRun run(bench, *muon, kWeight);
    run.step(Matrix(12, 7));
    CHECK(same_bits(run.weight(), scaled(kWeight, static_cast<float>(1.0 - 0.05 * 0.1))));
    CHECK(same_bits(run.state("row_exp_avg_sq"), Matrix(1, 12)));
}

TEST_CASE("Cautious decay acts only where weight and direction agree, zero counts as agreement", "[optim]") {
    Bench bench;
    const auto plain = make_muon({}), cautious = make_muon({.cautious_weight_decay = true});
    Matrix initial = kWeight;
    initial.at(3, 3) = 0.0F;
    OptimizerRun bold(bench, *plain, initial), careful(bench, *cautious, initial);
    bold.weight_decay = 0.0;
    careful.weight_decay = 4.0;
    bold.step(kGradient);
    careful.step(kGradient);
    int decayed = 0, kept = 0;
    for (std::size_t i = 0; i < initial.values.size(); ++i) {
        const auto w = static_cast<double>(initial.values[i]);
        const double moved = w - static_cast<double>(bold.weight().values[i]);  // rate times direction
        const bool agrees = w * moved >= 0.0;
        (agrees ? decayed : kept) += 1;
        const double want = w * (agrees ? 1.0 - 0.05 * 4.0 : 1.0) - moved;
        CHECK(static_cast<double>(careful.weight().values[i]) == Approx(want).margin(2e-6));
    }
    CHECK(decayed > 10);
    CHECK(kept > 10);
}

TEST_CASE("A Muon step has the same bits for every number of threads, on asynchronous streams and guarded", "[optim]") {
    const Matrix initial = convert<float>(gaussian(90, 61, 70));
    Matrix want;
    for (const device::CpuDeviceOptions& options : device_variants()) {
        Bench bench(options);
        Run run(bench, {.coefficient_type = CoefficientType::polar_express}, initial);
        run.blocks = {{"q", 0, 61}, {"k", 61, 9}, {"v", 70, 20}};
        for (std::uint64_t k = 0; k < 3; ++k) run.step(convert<float>(gaussian(90, 61, 80 + k)), {.clip = 0.9F});
        const Matrix got = bench.download(run.weight);
        if (want.values.empty()) want = got;
        INFO(options.threads << " threads, asynchronous " << options.asynchronous_streams);
        CHECK(same_bits(got, want));
    }
}

TEST_CASE("Muon refuses row blocks that do not tile the rows and a wrong number of states", "[optim]") {
    Bench bench;
    Run run(bench, {}, kWeight);
    const device::Tensor gradient = bench.upload(kGradient);
    const device::Tensor states[] = {run.momentum};
    const auto step = [&](std::vector<model::RowBlock> blocks, std::size_t state_count, std::int64_t t) {
        run.optimizer->step(bench.stream(), bench.workspace(),
                            {.weight = run.weight,
                             .gradient = gradient,
                             .states = std::span<const device::Tensor>(states).first(state_count),
                             .blocks = blocks,
                             .step = t});
    };
    CHECK_THROWS_AS(step({{"a", 0, 5}}, 1, 1), InternalError);
    CHECK_THROWS_AS(step({{"a", 0, 5}, {"b", 6, 6}}, 1, 1), InternalError);
    CHECK_THROWS_AS(step({{"a", 0, 12}, {"b", 12, 0}}, 1, 1), InternalError);
    CHECK_THROWS_AS(step({}, 0, 1), InternalError);
    CHECK_THROWS_AS(step({}, 1, 0), InternalError);
    CHECK(same_bits(bench.download(run.weight), kWeight));
    CHECK_NOTHROW(step({{"a", 0, 5}, {"b", 5, 7}}, 1, 1));
}
