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
