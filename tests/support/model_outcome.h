#pragma once

#include "mfsdp/device/cpu_device.h"

#include "support/model_cases.h"
#include "support/single_rank.h"

#include <vector>

namespace mfsdp::test {

/// Everything that one micro-batch gives, to be compared bit by bit.
struct Outcome {
    MicroBatchLoss loss;
    std::vector<std::vector<float>> gradients;
    bool operator==(const Outcome&) const = default;
};

inline void load(SingleRank& rank, const std::vector<std::vector<float>>& weights) {
    for (std::int64_t i = 0; i < rank.parameters(); ++i) rank.load(i, weights.at(static_cast<std::size_t>(i)));
}

inline Outcome outcome_of(SingleRank& rank, const Tokens& tokens) {
    Outcome outcome;
    outcome.loss = rank.run(tokens.inputs, tokens.targets);
    for (std::int64_t i = 0; i < rank.parameters(); ++i) outcome.gradients.push_back(rank.read_gradient(i));
    return outcome;
}

/// Runs the case from its random weights on a CPU of its own.
inline Outcome run_case(const ModelCase& description, const device::CpuDeviceOptions& options = {}) {
    const model::ModelSpec spec = model::describe_model(description.config);
    const auto device = device::make_cpu_device(options);
    SingleRank rank(*device, spec, description.options);
    load(rank, random_weights(spec));
    return outcome_of(rank, random_tokens(description));
}

}  // namespace mfsdp::test
