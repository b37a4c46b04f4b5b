#include "mfsdp/optim/matrix_stepper.h"
#include "mfsdp/optim/muon.h"
#include "mfsdp/optim/shampoo.h"
#include "mfsdp/optim/soap.h"

#include "optim/bench.h"
#include "support/catch.h"
#include "support/lapack.h"

#include <algorithm>
#include <deque>

using namespace mfsdp;
using namespace mfsdp::optim;
using namespace mfsdp::optim::test;

namespace {

/// A parameter under an optimizer, with all its states.
struct Parameter {
    device::Tensor weight, gradient;
    std::vector<device::Tensor> states;
    std::vector<model::RowBlock> blocks;
    std::int64_t number = 0;

    [[nodiscard]] MatrixStep step(std::int64_t t) const {
        return {.weight = weight,
                .gradient = gradient,
                .states = states,
                .blocks = blocks,
                .number = number,
                .learning_rate = 0.05,
                .weight_decay = 0.1,
                .step = t};
    }
};

struct Shape {
    std::int64_t rows, columns;
    std::vector<model::RowBlock> blocks{};
};

/// Matrices that share calls and matrices that do not.
const std::vector<Shape> kShapes{
    {12, 8}, {6, 20, {{"q", 0, 2}, {"k", 2, 2}, {"v", 4, 2}}}, {12, 8},
    {8, 12}, {6, 20, {{"q", 0, 2}, {"k", 2, 2}, {"v", 4, 2}}}, {12, 8, {{"a", 0, 6}, {"b", 6, 4}, {"c", 10, 2}}},
    {12, 8}};

std::deque<Parameter> make_parameters(Bench& bench, const MatrixOptimizer& optimizer) {
    std::deque<Parameter> parameters;
    std::int64_t number = 0;
    for (const Shape& shape : kShapes) {
        const auto seed = static_cast<std::uint64_t>(parameters.size());
        Parameter& parameter = parameters.emplace_back();
        parameter.weight = bench.upload(convert<float>(gaussian(shape.rows, shape.columns, 10 + seed)));
        parameter.gradient = bench.upload(convert<float>(gaussian(shape.rows, shape.columns, 40 + seed)));
        parameter.blocks = shape.blocks;
        parameter.number = number;
        number += std::max<std::int64_t>(1, std::ssize(shape.blocks));
        for (const StateSpec& spec : optimizer.states(shape.rows, shape.columns, shape.blocks)) {
            parameter.states.push_back(bench.state(spec));
        }
    }
    return parameters;
}

}  // namespace

TEST_CASE("Several matrices in one step, in any order, have the bits of one after the other", "[optim]") {
    std::vector<std::unique_ptr<MatrixOptimizer>> optimizers;
    optimizers.push_back(make_muon({.normuon = true}));
    if (!mfsdp::test::without_lapack()) {
        optimizers.push_back(make_shampoo({.start_step = 2, .precondition_frequency = 2, .stagger_refresh = true}));
        optimizers.push_back(make_soap({.precondition_frequency = 2, .stagger_refresh = true}));
    }
    for (const auto& optimizer : optimizers) {
        Bench together({.threads = 2}), apart;
        const auto many = make_parameters(together, *optimizer), single = make_parameters(apart, *optimizer);
        MatrixStepper stepper(*optimizer);
        std::vector<std::size_t> order(kShapes.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = (i * 3 + 2) % order.size();
        for (std::int64_t t = 1; t <= 5; ++t) {
            std::vector<MatrixStep> all;
            for (const std::size_t i : order) all.push_back(many[i].step(t));
            stepper.step(together.stream(), together.workspace(), all);
            for (const Parameter& parameter : single) {
                optimizer->step(apart.stream(), apart.workspace(), parameter.step(t));
            }
        }
        for (std::size_t i = 0; i < kShapes.size(); ++i) {
            INFO(optimizer->name() << ", matrix " << i);
            CHECK(same_bits(together.download(many[i].weight), apart.download(single[i].weight)));
        }
    }
}

TEST_CASE("What an optimizer does elementwise has the bits of the whole on any cut into rows", "[optim]") {
    std::vector<std::unique_ptr<MatrixOptimizer>> optimizers;
    optimizers.push_back(make_muon({.momentum_form = MomentumForm::heavy_ball}));
    for (const Grafting graft : {Grafting::adam, Grafting::rmsprop, Grafting::adagrad, Grafting::sgd}) {
        optimizers.push_back(make_shampoo({.grafting = graft}));
    }
    optimizers.push_back(make_soap({}));
    constexpr std::int64_t kRows = 12, kColumns = 7;
    Bench bench;
    const device::Tensor gradient = bench.upload(convert<float>(gaussian(kRows, kColumns, 70)));
    for (const auto& optimizer : optimizers) {
        std::vector<Matrix> want;
        for (const std::vector<std::int64_t>& cut :
             {std::vector<std::int64_t>{kRows}, std::vector<std::int64_t>{5, 0, 7},
              std::vector<std::int64_t>{1, 10, 1}}) {
            const auto matrix = [&] { return bench.zeros(kRows, kColumns); };
            std::vector<device::Tensor> states, averages;
            for (const StateSpec& spec : optimizer->block_states(kRows, kColumns)) {
                if (spec.element)
                    states.push_back(bench.upload(convert<float>(scaled(gaussian(kRows, kColumns, 71), 0.1))));
            }
            for (device::Tensor& state : states) {  // squares are not negative
                Matrix values = bench.download(state);
                for (float& value : values.values) value = std::abs(value);
                state = bench.upload(values);
            }
            for (std::int64_t i = 0; i < optimizer->averages(); ++i) averages.push_back(matrix());
            const device::Tensor input = matrix();
            std::int64_t row = 0;
            for (const std::int64_t count : cut) {
                const auto parts = [&](const std::vector<device::Tensor>& whole) {
                    std::vector<device::Tensor> result;
                    for (const device::Tensor& tensor : whole) result.push_back(tensor.slice(0, row, count));
                    return result;
                };
                const auto state_rows = parts(states), average_rows = parts(averages);
                optimizer->accumulate(bench.stream(), input.slice(0, row, count), {}, gradient.slice(0, row, count),
                                      state_rows, {.inverse_targets = 0.1F, .clip = 0.7F});
                if (!averages.empty()) optimizer->average(bench.stream(), average_rows, state_rows, 3);
                row += count;
            }
            std::vector<Matrix> got{bench.download(input)};
            for (const device::Tensor& tensor : states) got.push_back(bench.download(tensor));
            for (const device::Tensor& tensor : averages) got.push_back(bench.download(tensor));
            if (want.empty()) want = got;
            INFO(optimizer->name() << ", first cut " << cut.front());
            REQUIRE(got.size() == want.size());
            for (std::size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], want[i]));
            CHECK_FALSE(same_bits(got[0], Matrix(kRows, kColumns)));
        }
    }
}

TEST_CASE("Large matrices take turns with the workspace, small ones share it", "[optim]") {
    const auto high_water = [](std::int64_t rows, std::int64_t columns, std::size_t count) {
        const auto counting = device::make_counting_device({});
        const auto stream = counting->make_stream();
        device::MemoryLedger ledger;
        device::BufferPool pool(*counting, ledger, device::MemoryCategory::workspace, -1);
        std::vector<device::Buffer> buffers;
        const auto tensor = [&] {
            buffers.emplace_back(*counting, ledger, device::MemoryCategory::state, rows * columns * 4);
            return buffers.back().view(device::DType::float32, {rows, columns});
        };
        std::vector<MatrixStep> matrices;
        std::deque<std::array<device::Tensor, 1>> states;
        for (std::size_t i = 0; i < count; ++i) {
            matrices.push_back(
                {.weight = tensor(), .gradient = tensor(), .states = states.emplace_back(std::array{tensor()})});
        }
        const auto muon = make_muon({});
        MatrixStepper(*muon).step(*stream, pool, matrices);
        return pool.high_water();
    };
    CHECK(high_water(2048, 2048, 3) == high_water(2048, 2048, 1));
    CHECK(high_water(256, 256, 4) > 3 * high_water(256, 256, 1));
    CHECK(high_water(1024, 512, 100) <= 6 * 4 * MatrixStepper::kWaveElements);
}

TEST_CASE("States of a fused parameter are those of the whole and then of each block", "[optim]") {
    CHECK(state_key("layer.weight", {.name = "momentum", .shape = {2, 3}}) == "layer.weight/momentum");
    CHECK(state_key("layer.weight", {.name = "left_factor", .shape = {2, 2}, .element = false, .block = "q"}) ==
          "layer.weight[q]/left_factor");
    const StateSpec number{.name = "refresh_failures", .shape = {}, .element = false, .dtype = device::DType::int64};
    CHECK(number.count() == 1);
    CHECK(number.bytes() == 8);
    Bench bench;
    const Matrix identity = bench.download(
        bench.state({.name = "left_root", .shape = {3, 3}, .element = false, .start = StateStart::identity}));
    for (std::int64_t r = 0; r < 3; ++r) {
        for (std::int64_t c = 0; c < 3; ++c) CHECK(identity.at(r, c) == (r == c ? 1.0F : 0.0F));
    }
}

TEST_CASE("The mean cost of a step shares a refresh among the steps between two", "[optim]") {
    const OptimizerCost cost{.step = {.product_flops = 100, .element_bytes = 7},
                             .refresh = {.product_flops = 40, .eigen_flops = 90, .orthogonal_flops = 30},
                             .frequency = 10,
                             .staggered = true};
    CHECK(cost.mean().product_flops == 104);
    CHECK(cost.mean().eigen_flops == 9);
    CHECK(cost.mean().orthogonal_flops == 3);
    CHECK(cost.mean().element_bytes == 7);
    CHECK(cost.mean().flops() == 116);
    CHECK(cost.worst().flops() == 260);
    CHECK(cost.at(20, 0).flops() == 260);
    CHECK(cost.at(20, 1).flops() == 100);
    CHECK(cost.at(19, 1).flops() == 260);
}

TEST_CASE("Kinds of work take their own times, and weigh more than products where they are slower", "[optim]") {
    const StepCost cost{.product_flops = 600, .eigen_flops = 90, .orthogonal_flops = 40, .element_bytes = 32};
    CHECK(cost.seconds({.product_flops = 100, .eigen_flops = 30, .orthogonal_flops = 20, .element_bytes = 16}) ==
          Approx(6.0 + 3.0 + 2.0 + 2.0));
    // What there is none of needs no rate.
    CHECK(StepCost{.product_flops = 600}.seconds({.product_flops = 100}) == Approx(6.0));
    CHECK(StepCost{.product_flops = 600}.weighed_flops() == 600);
    CHECK(StepCost{.eigen_flops = 90}.weighed_flops() > 2 * 90);
    CHECK(StepCost{.orthogonal_flops = 40}.weighed_flops() > 40);
    CHECK(StepCost{.element_bytes = 32}.weighed_flops() > 32);
    CHECK(cost.weighed_flops() ==
          StepCost{.product_flops = 600}.weighed_flops() + StepCost{.eigen_flops = 90}.weighed_flops() +
              StepCost{.orthogonal_flops = 40}.weighed_flops() + StepCost{.element_bytes = 32}.weighed_flops());
}

TEST_CASE("A step that is no update shifts the refreshes behind it", "[optim]") {
    const OptimizerCost cost{.step = {.product_flops = 1},
                             .refresh = {.product_flops = 10},
                             .frequency = 5,
                             .staggered = true,
                             .skipped_steps = 1};
    for (std::int64_t step = 2; step < 30; ++step) {
        for (std::int64_t number = 0; number < 7; ++number) {
            CHECK(cost.at(step, number).product_flops == ((step - 1 + number) % 5 == 0 ? 11 : 1));
        }
    }
}

TEST_CASE("A period of refreshes has a step for every turn and one without any", "[optim]") {
    const auto text = [](std::int64_t from, std::int64_t frequency, const std::vector<std::int64_t>& shifts) {
        std::string result;
        double shares = 0.0;
        for (const RehearsalStep& step : refresh_period(from, frequency, shifts)) {
            result += std::to_string(step.step) + " ";
            shares += step.share;
        }
        CHECK(shares == Approx(1.0));
        return result;
    };
    CHECK(text(0, 1, {0, 5}) == "1 ");
    CHECK(text(3, 4, {0}) == "4 5 ");
    CHECK(text(3, 4, {1}) == "7 4 ");
    CHECK(text(3, 4, {0, 4, 8}) == "4 5 ");
    CHECK(text(3, 4, {0, 1, 2, 3}) == "4 5 6 7 ");
    CHECK(text(10, 1000, {0, 989, 988}) == "11 12 1000 13 ");
    CHECK(text(2, 3, {}) == "3 ");
}
