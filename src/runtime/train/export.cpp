#include "mfsdp/runtime/train/export.h"

#include "mfsdp/base/error.h"
#include "mfsdp/model/huggingface.h"
#include "mfsdp/runtime/train/launch.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <vector>

namespace mfsdp::runtime {

namespace {

/// Room for any parameter, taken before the first value is asked for: the ranks still can agree on a failure.
std::vector<float> room_for_largest(const model::ModelSpec& spec, const std::filesystem::path& directory) {
    std::int64_t largest = 0;
    for (const model::ParameterSpec& parameter : spec.parameters) largest = std::max(largest, parameter.count());
    try {
        std::vector<float> values;
        values.reserve(static_cast<std::size_t>(largest));
        // The writer's copy, turned or rounded.
        const std::vector<float> copy(static_cast<std::size_t>(largest));
        return values;
    } catch (const std::bad_alloc&) {
        throw CheckpointError("checkpoint: " + directory.string() + ": the machine lacks the " +
                              std::to_string(2 * largest * device::size_of(device::DType::float32)) +
                              " bytes of memory that writing the largest parameter takes");
    }
}

bool all_finite(std::span<const float> values) {
    return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

}  // namespace

void export_weights(ParameterStore& weights, const model::ModelSpec& spec, comm::Communicator& communicator,
                    const ExportTarget& target) {
    const bool writes = communicator.rank() == 0;
    std::unique_ptr<model::HuggingFaceWriter> writer;
    std::vector<float> values;
    run_together(communicator, [&] {
        if (!writes) return;
        values = room_for_largest(spec, target.directory);
        writer = std::make_unique<model::HuggingFaceWriter>(target.directory, spec, target.bookkeeping, target.dtype);
    });
    std::string not_finite;
    for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
        const model::ParameterSpec& parameter = spec.parameters[i];
        if (writes) values.resize(static_cast<std::size_t>(parameter.count()));
        weights.collect(static_cast<std::int64_t>(i), values);
        if (not_finite.empty() && !all_finite(values)) not_finite = parameter.name;
        if (writes) writer->write(parameter, values);
    }
    run_together(communicator, [&] {
        if (!writes) return;
        if (!not_finite.empty()) {
            throw NumericalError("train: " + not_finite + " has values that are not finite, so " +
                                 target.directory.string() + " is not written");
        }
        writer->finish();
    });
}

}  // namespace mfsdp::runtime
