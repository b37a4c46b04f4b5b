#include "mfsdp/optim/matrix_optimizer.h"

#include "mfsdp/optim/muon.h"

#include "optim/bench.h"
#include "support/catch.h"

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
    Bench together, apart;
    const auto optimizer = make_muon({});
    const auto many = make_parameters(together, *optimizer), single = make_parameters(apart, *optimizer);
    std::vector<std::size_t> order(kShapes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = (i * 3 + 2) % order.size();
    for (std::int64_t t = 1; t <= 3; ++t) {
        std::vector<MatrixStep> all;
        for (const std::size_t i : order) all.push_back(many[i].step(t));
        optimizer->step(together.stream(), together.workspace(), all);
        for (const Parameter& parameter : single) {
            optimizer->step(apart.stream(), apart.workspace(), parameter.step(t));
        }
    }
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
        INFO("matrix " << i);
        CHECK(same_bits(together.download(many[i].weight), apart.download(single[i].weight)));
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
        make_muon({})->step(*stream, pool, matrices);
        return pool.high_water();
    };
    CHECK(high_water(2048, 2048, 3) == high_water(2048, 2048, 1));
    CHECK(high_water(256, 256, 4) > 3 * high_water(256, 256, 1));
    CHECK(high_water(1024, 512, 100) <= 6 * 4 * MatrixOptimizer::kWaveElements);
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
    const OptimizerCost cost = with_refresh({.product_flops = 100, .element_bytes = 7},
                                            {.product_flops = 40, .eigen_flops = 90, .orthogonal_flops = 30}, 10);
    CHECK(cost.mean.product_flops == 104);
    CHECK(cost.mean.eigen_flops == 9);
    CHECK(cost.mean.orthogonal_flops == 3);
    CHECK(cost.mean.element_bytes == 7);
    CHECK(cost.mean.flops() == 116);
    CHECK(cost.worst.flops() == 260);
}
