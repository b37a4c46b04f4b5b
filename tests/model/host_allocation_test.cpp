#include "mfsdp/device/counting_device.h"
#include "mfsdp/device/cpu_device.h"
#include "mfsdp/model/transformer.h"

#include "support/catch.h"
#include "support/host_allocations.h"
#include "support/model_cases.h"
#include "support/single_rank.h"

using namespace mfsdp;

namespace {

/// Weights or gradients of all visits in one buffer, prepared before anything is counted. The tables are one panel.
struct Tensors {
    Tensors(device::Device& device, device::MemoryLedger& ledger, const model::ModelSpec& spec)
        : memory(device, ledger, device::MemoryCategory::weights,
                 spec.parameter_count() * 4 + static_cast<std::int64_t>(spec.parameters.size()) * device::kAlignment) {
        std::vector<device::Tensor> tensors;
        std::int64_t offset = 0;
        for (const model::ParameterSpec& parameter : spec.parameters) {
            tensors.push_back(
                parameter.shape.size() == 1
                    ? memory.view(device::DType::float32, {parameter.shape[0]}, offset)
                    : memory.view(device::DType::float32, {parameter.shape[0], parameter.shape[1]}, offset));
            offset = device::align_up(offset + tensors.back().bytes());
        }
        for (const model::UnitVisit& visit : model::unit_visits(spec, model::Purpose::train)) {
            const model::UnitSpec& unit = spec.units[static_cast<std::size_t>(visit.unit)];
            visits.emplace_back();
            for (const std::int64_t parameter : unit.parameters) {
                visits.back().push_back(tensors[static_cast<std::size_t>(parameter)]);
            }
        }
    }
    device::Buffer memory;
    std::vector<std::vector<device::Tensor>> visits;
};

std::int64_t allocations_of_a_later_micro_batch(device::Device& device, const test::ModelCase& description) {
    const model::ModelSpec spec = model::describe_model(description.config);
    const auto stream = device.make_stream();
    device::MemoryLedger ledger;
    const bool counting = device.kind() == device::DeviceKind::counting;
    device::BufferPool pool(device, ledger, device::MemoryCategory::activations,
                            counting ? -1 : test::SingleRank::activation_bytes(spec, description.options));
    model::Transformer transformer(spec, description.options, ledger, pool, *stream);
    const Tensors weights(device, ledger, spec);
    const Tensors gradients(device, ledger, spec);
    const device::Buffer tokens(device, ledger, device::MemoryCategory::transfer, 4096);
    const auto view = [&](std::int64_t offset) {
        return tokens.view(device::DType::int32, {description.options.batch_size, description.options.sequence_length},
                           offset);
    };
    const model::MicroBatch micro_batch{.inputs = view(0),
                                        .targets = view(1024),
                                        .loss_sum = tokens.view(device::DType::float64, {1}, 2048),
                                        .target_count = tokens.view(device::DType::int64, {1}, 2304),
                                        .log_z_squares = tokens.view(device::DType::float64, {1}, 2560)};
    for (const Tensors* all : {&weights, &gradients}) {
        const std::int64_t count = all->memory.bytes() / 4;
        device::launch(*stream, device::Fill{.out = all->memory.view(device::DType::float32, {count}), .value = 0.01});
    }
    const std::vector<model::UnitVisit> visits = model::unit_visits(spec, model::Purpose::train);
    device::launch(*stream, device::Fill{.out = tokens.view(device::DType::int32, {1024}), .value = 1.0});

    std::int64_t before = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
        if (repeat == 2) before = test::host_allocations;
        for (std::size_t i = 0; i < visits.size(); ++i) {
            transformer.run(visits[i], weights.visits[i], gradients.visits[i], micro_batch);
        }
        stream->synchronize();
    }
    return test::host_allocations - before;
}

}  // namespace

TEST_CASE("after the first micro-batches a micro-batch allocates no host memory") {
    for (const test::ModelCase& description : test::model_cases()) {
        INFO(description.name);
        const auto counting = device::make_counting_device({});
        const std::int64_t before = test::host_allocations;
        CHECK(allocations_of_a_later_micro_batch(*counting, description) == 0);
        CHECK(test::host_allocations > before);  // the counter counts
        const auto cpu = device::make_cpu_device({});
        CHECK(allocations_of_a_later_micro_batch(*cpu, description) == 0);
    }
}
