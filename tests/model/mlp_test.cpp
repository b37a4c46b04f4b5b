#include "model/layers/mlp.h"

#include "mfsdp/device/counting_device.h"
#include "mfsdp/device/ops/matmul.h"

#include "support/catch.h"

#include <array>

using namespace mfsdp;
using device::Tensor;

TEST_CASE("the MLP of gpt2 takes GELU with its first product, and keeps what it took it of") {
    const auto device = device::make_counting_device({});
    const auto stream = device->make_stream();
    device::MemoryLedger ledger;
    device::BufferPool pool(*device, ledger, device::MemoryCategory::activations, -1);
    model::ModelConfig config;
    config.hidden_size = 16;
    config.intermediate_size = 64;
    model::ParameterCursor cursor;
    const model::Mlp mlp(cursor, config);
    REQUIRE(cursor.used() == 4);

    const device::Buffer memory(*device, ledger, device::MemoryCategory::weights, 4 * 64 * 16);
    const std::array<Tensor, 4> weights{
        memory.view(device::DType::float32, {64, 16}), memory.view(device::DType::float32, {64}),
        memory.view(device::DType::float32, {16, 64}), memory.view(device::DType::float32, {16})};
    const model::LayerContext context{*stream, pool, 2, 3};
    model::MlpRecord record;
    mlp.forward(context, weights, model::Activation(context, {6, 16}), record);

    const device::Matmul product{.out = record.gate.tensor(),
                                 .a = record.input.tensor(),
                                 .b = weights[0],
                                 .transpose_b = true,
                                 .bias = weights[1],
                                 .gelu = record.hidden.tensor()};
    REQUIRE_NOTHROW(product.check());
    CHECK(device->total().flops == product.cost().flops);
    CHECK(device->total().bytes == product.cost().bytes);
}
