#include "mfsdp/model/transformer.h"

#include "support/catch.h"
#include "support/model_cases.h"
#include "support/model_outcome.h"

using namespace mfsdp;
using test::ModelCase;
using test::Outcome;
using test::SingleRank;

namespace {

/// The case with the parameters frozen for which `is_frozen` holds, their gradients holding 77 from before.
template <class IsFrozen>
Outcome run_frozen(const ModelCase& description, IsFrozen is_frozen) {
    const model::ModelSpec spec = model::describe_model(description.config);
    const auto device = device::make_cpu_device({});
    SingleRank rank(*device, spec, description.options);
    test::load(rank, test::random_weights(spec));
    for (std::int64_t i = 0; i < rank.parameters(); ++i) {
        if (is_frozen(i)) rank.freeze(i);
        device::launch(rank.stream(), device::Fill{.out = rank.gradient(i), .value = 77.0});
    }
    return test::outcome_of(rank, test::random_tokens(description));
}

}  // namespace

TEST_CASE("frozen parameters get no gradient and change no bit of the others'") {
    for (const device::DType type : test::compute_types()) {
        for (ModelCase description : test::model_cases()) {
            description.options.compute_type = type;
            const Outcome expected = test::run_case(description);
            // Every parameter is frozen in one run and trained in another; then all are frozen.
            for (const int kept : {0, 1, 2}) {
                INFO(description.name << ", run " << kept);
                const auto is_frozen = [&](std::int64_t parameter) { return parameter % 2 != kept; };
                const Outcome outcome = run_frozen(description, is_frozen);
                CHECK(outcome.loss == expected.loss);
                for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
                    INFO("parameter " << i);
                    if (is_frozen(static_cast<std::int64_t>(i))) {
                        CHECK(outcome.gradients[i] == std::vector<float>(expected.gradients[i].size(), 77.0F));
                    } else {
                        CHECK(outcome.gradients[i] == expected.gradients[i]);
                    }
                }
            }
        }
    }
}

TEST_CASE("the product that makes a matrix's gradient is left out if the matrix is frozen") {
    for (const ModelCase& description : test::model_cases()) {
        const model::ModelSpec spec = model::describe_model(description.config);
        const std::int64_t tokens = description.options.batch_size * description.options.sequence_length;
        const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
        const auto flops = [&](std::int64_t frozen) {
            const auto device = device::make_counting_device({});
            SingleRank rank(*device, spec, description.options);
            if (frozen >= 0) rank.freeze(frozen);
            device->reset_total();
            rank.run(ids, ids);
            return device->total().flops;
        };
        const std::int64_t all = flops(-1);
        int matrices = 0;
        for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
            const model::ParameterSpec& parameter = spec.parameters[i];
            if (parameter.kind != model::ParameterKind::block_matrix) continue;
            INFO(description.name << ": " << parameter.name);
            CHECK(all - flops(static_cast<std::int64_t>(i)) == 2 * tokens * parameter.count());
            ++matrices;
        }
        CHECK(matrices >= 8);
    }
}
